"""The CPUs that the Pod has, and threads of QEMU that are put on them by hand. Imported only where a VMI asks for it.

With KVM libvirt pins. Under emulation it refuses to, because older QEMU ran all vCPUs in one thread; today each has its
own, with its number in its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from virt_launcher.convert.cpuplan import HostCpu
from virt_launcher.errors import LauncherError

_VCPU_THREAD = re.compile(r"CPU (\d+)/")
_CELL = re.compile(r"node(\d+)")


def host_cpus(sysfs: Path = Path("/sys/devices/system/cpu")) -> tuple[HostCpu, ...]:
    """Those on which this process may run: the kubelet limits the whole Pod to them."""
    return tuple(_host_cpu(sysfs / f"cpu{number}", number) for number in sorted(os.sched_getaffinity(0)))


def _host_cpu(directory: Path, number: int) -> HostCpu:
    """A core is known by its first thread. What the kernel does not tell counts as alone, in the first cell."""
    try:
        siblings = (directory / "topology/thread_siblings_list").read_text()
        core = int(re.split("[-,]", siblings.strip())[0])
        cells = [int(found[1]) for entry in directory.iterdir() if (found := _CELL.fullmatch(entry.name))]
    except (OSError, ValueError):
        return HostCpu(0, number, number)
    return HostCpu(min(cells, default=0), core, number)


def pin_vcpus(pid: int | None, cpus: Sequence[int]) -> None:
    """Raises LauncherError if a vCPU has no thread of its own or it cannot be pinned."""
    threads = dict(_vcpu_threads(pid))
    for vcpu, cpu in enumerate(cpus):
        if vcpu not in threads:
            raise LauncherError(f"vCPU {vcpu} has no thread of its own in QEMU, so it cannot be pinned")
        try:
            os.sched_setaffinity(threads[vcpu], {cpu})
        except OSError as error:
            raise LauncherError(f"vCPU {vcpu} cannot be pinned to CPU {cpu}: {error.strerror}") from error


def _vcpu_threads(pid: int | None) -> Iterator[tuple[int, int]]:
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            found = _VCPU_THREAD.match((task / "comm").read_text())
        except OSError:
            continue  # It has just ended.
        if found:
            yield int(found[1]), int(task.name)
