"""Lets the vCPUs of a real-time machine run before everything else on their CPUs (decisions/0032).

The launcher has no right to that, and gets none: the threads of its QEMU are set from outside. Which they are is what
their names say, but only in the one child of the launcher that has any, and in the launcher's own cgroup.
"""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from virt_core.apis.owncpus import vcpus
from virt_core.apis.realtime import realtime_vcpus
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.procs import ProcessGone, cgroup_paths, children

#: The lowest of real time: before all ordinary threads.
PRIORITY = 1
_VCPU = re.compile(rb"CPU (\d{1,5})/(?:KVM|TCG)\n")
#: More threads are not looked at. No machine has as many vCPUs.
_MOST_THREADS = 4096


def give_priority(pid: int, pidfd: int, vmi: VirtualMachineInstance) -> None:
    """To the vCPUs that the VMI names, of the launcher's machine. Raises OSError."""
    try:
        wanted = realtime_vcpus(vmi, vcpus(vmi))
    except ValueError as error:
        raise OSError(errno.EINVAL, f"spec.domain.cpu.realtime.mask: {error}") from error
    signal.pidfd_send_signal(pidfd, 0)  # The number is still the launcher's.
    machine = _machine(pid)
    threads = dict(_vcpu_threads(machine))
    if missing := sorted(wanted.difference(threads)):
        raise OSError(errno.ESRCH, f"QEMU has no thread of its own for vCPU {missing[0]}")
    for vcpu in sorted(wanted):
        _set(machine, threads[vcpu], vcpu)


def _machine(launcher: int) -> int:
    """The process of the machine. What the Pod runs beside it cannot stand in for it: then there are two."""
    ours = _cgroups(launcher)
    found = [child for child in children(launcher) if any(_vcpu_threads(child)) and _cgroups(child) == ours]
    if len(found) != 1:
        raise OSError(errno.ESRCH, f"{len(found)} processes of the Pod have threads of vCPUs; one must")
    return found[0]


def _cgroups(pid: int) -> list[str]:
    """Nobody chooses his own."""
    try:
        return cgroup_paths(pid)
    except ProcessGone as error:
        raise ProcessLookupError(errno.ESRCH, str(error)) from error


def _vcpu_threads(pid: int) -> Iterator[tuple[int, int]]:
    """Number of the vCPU, number of the thread."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")[:_MOST_THREADS]
    except FileNotFoundError:
        return
    for task in tasks:
        with suppress(OSError), _thread(pid, int(task)) as folder:
            if found := _VCPU.fullmatch(_comm(folder)):
                yield int(found[1]), int(task)


def _set(pid: int, thread: int, vcpu: int) -> None:
    """The kernel takes a number, and numbers come back: only a thread that is there before and after was meant. Its
    children do not inherit it."""
    try:
        with _thread(pid, thread) as folder:
            if (found := _VCPU.fullmatch(_comm(folder))) is None or int(found[1]) != vcpu:
                raise ProcessLookupError(errno.ESRCH, f"the thread of vCPU {vcpu} has ended")
            os.sched_setscheduler(thread, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
            try:
                _comm(folder)
            except OSError:
                with suppress(ProcessLookupError):
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
                raise
    except PermissionError as error:
        why = (
            "virt-handler needs CAP_SYS_NICE, and the Pod's cgroup a share of real time, to schedule vCPUs in real time"
        )
        raise OSError(error.errno, why) from error


@contextmanager
def _thread(pid: int, thread: int) -> Iterator[int]:
    """A descriptor of its directory: once the thread has ended nothing can be read there, whoever has its number."""
    folder = os.open(f"/proc/{pid}/task/{thread}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def _comm(folder: int) -> bytes:
    file = os.open("comm", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(file, 64)
    finally:
        os.close(file)
