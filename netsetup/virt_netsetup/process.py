"""The Pod's namespaces and cgroup as places for a child of ours, and telling processes apart."""

from __future__ import annotations

import ctypes
import os
import select
import signal
from pathlib import Path

from virt_netsetup import cgroups
from virt_netsetup.model import NetsetupError, Value

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None)

CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWCGROUP = 0x00020000, 0x40000000, 0x20000000, 0x02000000
CLONE_NEWIPC = 0x08000000
PR_SET_PDEATHSIG = 1


class Placement(Value, frozen=True):
    """Where a child goes. Without a Pod process it stays where we are.

    With `process`, a descriptor of the Pod's process, its number is believed only while that one lives.
    """

    pod_pid: int = 0
    pidns: str = ""
    process: int = -1

    def pid_namespace(self) -> str:
        return self.pidns or f"/proc/{self.pod_pid}/ns/pid"

    def still_there(self) -> None:
        """For what was looked up by the number. Raises NetsetupError."""
        if self.process >= 0 and select.select([self.process], [], [], 0)[0]:
            raise NetsetupError("podProcess", f"process {self.pod_pid} of the Pod has ended")

    @property
    def separate(self) -> bool:
        return bool(self.pod_pid) and os.readlink(self.pid_namespace()) != os.readlink("/proc/self/ns/pid")


def kernel_call(name: str, *arguments: object) -> int:
    """A function of the C library that says how it failed. Raises OSError."""
    result: int = getattr(_libc, name)(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def enter_namespace(path: str, kind: int) -> None:
    """setns: allowed because this process has one thread."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        kernel_call("setns", descriptor, kind)
    except OSError as error:
        raise OSError(error.errno, f"cannot enter the namespace {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def fork_to_become() -> int:
    """A fork for a child that soon becomes another program, without what Python does for one that stays Python (locks,
    random numbers, hooks of libraries): that would touch a megabyte of pages, which are copied then. Only for a process
    with one thread."""
    return int(_python.fork())


def end_with_parent(parent: int) -> None:
    """The kernel kills us when our parent ends; if it has ended already, there is nobody to work for."""
    kernel_call("prctl", PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong(0)] * 3)
    if os.getppid() != parent:
        os._exit(1)


def cgroup_files(pid: int) -> list[Path]:
    """Seen as the node sees them: within a cgroup namespace of our own we could not move anybody out of it."""
    if cgroups.is_foreign_namespace():
        enter_namespace("/proc/1/ns/cgroup", CLONE_NEWCGROUP)
    return cgroups.files_of(pid)


def start_time(pid: int) -> int | None:
    """In clock ticks since the boot; nothing if there is no such process, or only its remains."""
    try:
        # The name may contain anything, but it ends with the last parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
