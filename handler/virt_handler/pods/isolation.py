"""Which processes belong to a Pod, by the cgroup that the node put them in.

A process can neither choose nor hide its cgroup, so this is the identity that we trust: no name, no label, no message.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from virt_core.apis import names
from virt_core.runtime.files import read_beneath

# `pod<uid>` as cgroupfs writes it, `...-pod<uid with underscores>.slice` as systemd does.
_POD = re.compile(r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?=/|$)")
_MAX_CGROUP_FILE = 64 * 1024


def pod_of_cgroups(text: str, own: str = "") -> str | None:
    """The Pod UID in the content of /proc/PID/cgroup.

    The outermost match counts: a Pod with a writable cgroup could make a child named after another Pod, never a parent.
    What the process has in common with our own cgroup does not count: where the whole node runs in a Pod of another
    cluster, that Pod is in everybody's path.
    """
    ours = dict(_hierarchies(own))
    for hierarchy, path in _hierarchies(text):
        if match := _POD.search(_below(path, ours.get(hierarchy, ""))):
            return match.group(1).replace("_", "-")
    return None


def _hierarchies(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        yield controllers, path


def _below(path: str, own: str) -> str:
    """The part of a path after the directories that it shares with our own."""
    theirs, ours = path.split("/"), own.split("/")
    shared = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
    return "/" + "/".join(theirs[shared:])


@functools.cache
def _own_cgroups(proc: str) -> str:
    try:
        return Path(proc, "self/cgroup").read_text()
    except FileNotFoundError:
        return ""


def pod_of(pid: int, proc: str = "/proc") -> str | None:
    """The UID of the Pod that a process belongs to; None for a process of the node, or one that has ended."""
    try:
        with open(f"{proc}/{pid}/cgroup") as file:
            return pod_of_cgroups(file.read(_MAX_CGROUP_FILE), _own_cgroups(proc))
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
    #: The launcher's user, as the node numbers it: whatever the Pod calls that one.
    launcher: int

    def close(self) -> None:
        os.close(self.fd)


def open_netns(pod_uid: str, proc: str = "/proc") -> PodNetns:
    """Opens the network namespace of a Pod. Refuses our own: a Pod on the node's network is not ours to wire."""
    own = Path(proc, "self/ns/net").stat().st_ino
    for pid in pod_pids(pod_uid, proc):
        try:
            launcher = node_id(pid, names.LAUNCHER_UID, proc=proc)
            fd = os.open(f"{proc}/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # It has ended, or made itself a user namespace in which nobody is the launcher.
        # Asked again after the open: the number may have gone to another process in between.
        if pod_of(pid, proc) == pod_uid and os.fstat(fd).st_ino != own:
            return PodNetns(pid, fd, launcher)
        os.close(fd)
    raise NoNamespaceError(f"no process of Pod {pod_uid} has a network namespace of its own")


@dataclass(frozen=True, slots=True)
class PodProcess:
    """A process of a Pod and its PID namespace, by descriptor: a number can go to another process."""

    pidns: int
    process: int

    def close(self) -> None:
        os.close(self.pidns)
        os.close(self.process)


def open_process(pod_uid: str, pid: int, proc: str = "/proc") -> PodProcess:
    """Raises NoNamespaceError when the number is not, or no more, that of a process of the Pod."""
    gone = f"process {pid} of Pod {pod_uid} has ended"
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        raise NoNamespaceError(gone) from error
    try:
        pidns = os.open(f"{proc}/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        os.close(process)
        raise NoNamespaceError(gone) from error
    opened = PodProcess(pidns, process)
    # Asked after both were opened: whoever had the number then is the Pod's.
    if pod_of(pid, proc) == pod_uid:
        return opened
    opened.close()
    raise NoNamespaceError(gone)


def node_id(pid: int, number: int, kind: str = "uid", proc: str = "/proc") -> int:
    """What a user (or group) of a process's own user namespace is on the node; the same number when it has none.

    Raises ProcessLookupError when the process has ended, and OSError for one that its namespace does not know.
    """
    try:
        lines = Path(proc, str(pid), f"{kind}_map").read_text().splitlines()
    except FileNotFoundError as error:
        raise ProcessLookupError(f"process {pid} has ended") from error
    for first, base, count in (map(int, line.split()) for line in lines):
        if first <= number < first + count:
            return base + number - first
    raise OSError(errno.EINVAL, f"{kind} {number} is none in the user namespace of process {pid}")


@contextmanager
def open_root(pid: int, proc: str = "/proc") -> Iterator[int | None]:
    """The root directory of a process (O_PATH); None if it shares our mounts, or has ended.

    Whoever shares our mounts (a runtime's monitor, a process of the node) would show us the node's own files.
    """
    try:
        root = os.open(f"{proc}/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        yield None
        return
    try:
        yield None if _mounts(pid, proc) in (None, _mounts("self", proc)) else root
    finally:
        os.close(root)


def read_file(pod_uid: str, path: str, limit: int, proc: str = "/proc") -> bytes:
    """A small file as a Pod's process sees it. Opened beneath that process's root: it may have put links there.

    The first process may be the Pod's empty sandbox, which need not have the file.
    """
    missing: FileNotFoundError | None = None
    for pid in pod_pids(pod_uid, proc):
        with open_root(pid, proc) as root:
            if root is None or pod_of(pid, proc) != pod_uid:
                continue
            try:
                return read_beneath(root, path, limit)
            except FileNotFoundError as error:
                missing = error
    raise missing or NoNamespaceError(f"no process of Pod {pod_uid} has a root of its own")


def _mounts(pid: int | str, proc: str) -> int | None:
    try:
        return os.stat(f"{proc}/{pid}/ns/mnt").st_ino
    except (FileNotFoundError, ProcessLookupError):
        return None
