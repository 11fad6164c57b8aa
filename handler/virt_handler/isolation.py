"""Which processes belong to a Pod, by the cgroup that the node put them in.

A process can neither choose nor hide its cgroup, so this is the identity that we trust: no name, no label, no message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from virt_core.runtime.files import read_beneath

# `pod<uid>` as cgroupfs writes it, `...-pod<uid with underscores>.slice` as systemd does.
_POD = re.compile(r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?=/|$)")
_MAX_CGROUP_FILE = 64 * 1024


def pod_of_cgroups(text: str) -> str | None:
    """The Pod UID in the content of /proc/PID/cgroup.

    The outermost match counts: a Pod with a writable cgroup could make a child named after another Pod, never a parent.
    """
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        if match := _POD.search(path):
            return match.group(1).replace("_", "-")
    return None


def pod_of(pid: int, proc: str = "/proc") -> str | None:
    """The UID of the Pod that a process belongs to; None for a process of the node, or one that has ended."""
    try:
        with open(f"{proc}/{pid}/cgroup") as file:
            return pod_of_cgroups(file.read(_MAX_CGROUP_FILE))
    except (FileNotFoundError, ProcessLookupError):
        return None


def _pids(proc: str) -> Iterator[int]:
    for entry in os.scandir(proc):
        if entry.name.isdecimal():
            yield int(entry.name)


def pod_pids(pod_uid: str, proc: str = "/proc") -> list[int]:
    """All processes of a Pod, lowest first."""
    return sorted(pid for pid in _pids(proc) if pod_of(pid, proc) == pod_uid)


class NoNamespaceError(LookupError):
    """The Pod has no process with a network namespace of its own."""


@dataclass(frozen=True, slots=True)
class PodNetns:
    """An open network namespace of a Pod. The descriptor keeps it valid even when the process ends."""

    pid: int
    fd: int

    def close(self) -> None:
        os.close(self.fd)


def open_netns(pod_uid: str, proc: str = "/proc") -> PodNetns:
    """Opens the network namespace of a Pod. Refuses our own: a Pod on the node's network is not ours to wire."""
    own = Path(proc, "self/ns/net").stat().st_ino
    for pid in pod_pids(pod_uid, proc):
        try:
            fd = os.open(f"{proc}/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            continue
        # Asked again after the open: the number may have gone to another process in between.
        if pod_of(pid, proc) == pod_uid and os.fstat(fd).st_ino != own:
            return PodNetns(pid, fd)
        os.close(fd)
    raise NoNamespaceError(f"no process of Pod {pod_uid} has a network namespace of its own")


def read_file(pod_uid: str, path: str, limit: int, proc: str = "/proc") -> bytes:
    """A small file as a Pod's process sees it. Opened beneath that process's root: it may have put links there."""
    own = os.stat(f"{proc}/self/ns/mnt").st_ino
    for pid in pod_pids(pod_uid, proc):
        try:
            root = os.open(f"{proc}/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            continue
        try:
            # A process that shares our mounts (the runtime's monitor) would show us the node's file.
            if _mounts(pid, proc) not in (None, own) and pod_of(pid, proc) == pod_uid:
                return read_beneath(root, path, limit)
        finally:
            os.close(root)
    raise NoNamespaceError(f"no process of Pod {pod_uid} has a root of its own")


def _mounts(pid: int, proc: str) -> int | None:
    try:
        return os.stat(f"{proc}/{pid}/ns/mnt").st_ino
    except (FileNotFoundError, ProcessLookupError):
        return None
