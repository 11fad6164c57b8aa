"""Starting a program inside the Pod's PID namespace and cgroup, and telling processes apart."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

from virt_netsetup import cgroups
from virt_netsetup.model import NetsetupError, Value

CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWCGROUP = 0x40000000, 0x20000000, 0x02000000


class Placement(Value, frozen=True):
    """Where a child goes. Without a Pod process it stays where we are."""

    pod_pid: int = 0

    def pid_namespace(self) -> str:
        return f"/proc/{self.pod_pid}/ns/pid"

    @property
    def separate(self) -> bool:
        return bool(self.pod_pid) and os.readlink(self.pid_namespace()) != os.readlink("/proc/self/ns/pid")


def enter_namespace(path: str, kind: int) -> None:
    """setns: allowed because this process has one thread."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, kind) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot enter the namespace {path}: {os.strerror(code)}")
    finally:
        os.close(descriptor)


def cgroup_files(pid: int) -> list[Path]:
    """Seen as the node sees them: within a cgroup namespace of our own we could not move anybody out of it."""
    if cgroups.is_foreign_namespace():
        enter_namespace("/proc/1/ns/cgroup", CLONE_NEWCGROUP)
    return cgroups.files_of(pid)


def run(command: list[str], placement: Placement, within_s: float) -> tuple[int, str]:
    """Runs the command in its place; returns its exit code and what it complained about."""
    join = (
        [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in cgroup_files(placement.pod_pid)]
        if placement.pod_pid
        else []
    )
    if placement.separate:
        # From here on our children belong to the Pod's PID namespace; we ourselves stay.
        enter_namespace(placement.pid_namespace(), CLONE_NEWPID)

    def into_cgroups() -> None:
        for descriptor in join:
            os.write(descriptor, b"0")

    # A file for the messages: a pipe would stay open in the child that lives on.
    complaints = os.memfd_create("complaints", os.MFD_CLOEXEC)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=complaints,
            stderr=complaints,
            timeout=within_s,
            check=False,
            cwd="/",
            preexec_fn=into_cgroups if join else None,
            start_new_session=True,
        )
        return done.returncode, os.pread(complaints, 4096, 0).decode(errors="replace").strip()
    except FileNotFoundError as error:
        raise NetsetupError("StartDhcp", f"{command[0]} is not installed", critical=True) from error
    except subprocess.TimeoutExpired as error:
        raise NetsetupError("StartDhcp", f"{command[0]} was not ready within {within_s:.0f} s") from error
    except subprocess.SubprocessError as error:
        raise NetsetupError("StartDhcp", f"{command[0]} could not be put into the Pod's cgroup: {error}") from error
    finally:
        for descriptor in (*join, complaints):
            os.close(descriptor)


def start_time(pid: int) -> int | None:
    """In clock ticks since the boot; nothing if there is no such process, or only its remains."""
    try:
        # The name may contain anything, but it ends with the last parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def host_pid(pid: int, placement: Placement) -> int:
    """Our number of the process that has the given number in the Pod's PID namespace."""
    if not placement.separate:
        return pid
    namespace = os.readlink(placement.pid_namespace())
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _namespace_of(entry) == namespace and _inner_pid(entry) == pid:
            return int(entry)
    raise NetsetupError("StartDhcp", f"process {pid} of the Pod's namespace ended at once")


def _namespace_of(entry: str) -> str:
    try:
        return os.readlink(f"/proc/{entry}/ns/pid")
    except OSError:
        return ""


def _inner_pid(entry: str) -> int:
    try:
        for line in Path(f"/proc/{entry}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        return 0
    return 0
