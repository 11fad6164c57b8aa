"""The cgroups of Pods, in whatever hierarchies the machine has: several of v1, the one of v2, or both."""

from __future__ import annotations

import errno
import functools
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

_EMPTY_DEADLINE_S = 10.0
_POLL_S = 0.01
_MISSING = (errno.ENOENT, errno.ENODEV)


@dataclass(frozen=True)
class Hierarchy:
    mount: Path
    unified: bool
    controllers: frozenset[str]


def of_instance(name: str) -> str:
    """The group in which everything of an instance runs."""
    return f"/virtpod-{name}"


@functools.cache
def hierarchies() -> tuple[Hierarchy, ...]:
    return tuple(parse_hierarchies(Path("/proc/self/mountinfo").read_text()))


def parse_hierarchies(mountinfo: str) -> list[Hierarchy]:
    found = []
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            found.append(Hierarchy(Path(head.split(" ")[4]), kind == "cgroup2", frozenset(options.split(","))))
    return found


def only_unified() -> bool:
    return all(hierarchy.unified for hierarchy in hierarchies())


def join(path: str, pid: int) -> None:
    """Moves a process into a cgroup of ours, out of the reach of whoever stops the service that started us."""
    for hierarchy in hierarchies():
        if "cpuset" in hierarchy.controllers:
            continue  # A new v1 cpuset has no CPUs and takes nobody.
        directory = _directory(hierarchy, path)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.procs").write_text(str(pid))


def processes(path: str) -> set[int]:
    """All processes in a cgroup and below it."""
    found: set[int] = set()
    for hierarchy in hierarchies():
        for directory, _, _ in os.walk(_directory(hierarchy, path)):
            found.update(_read_procs(Path(directory) / "cgroup.procs"))
    return found


def _read_procs(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split()]
    except OSError as err:
        if err.errno in _MISSING:
            return []
        raise


def remove(path: str) -> None:
    """Kills whatever is left in a cgroup and removes it, with all below it. Fine when it is gone."""
    deadline = time.monotonic() + _EMPTY_DEADLINE_S
    while left := processes(path):
        for pid in left:
            _kill(pid)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(left)[:5]} in the cgroup {path} do not die")
        time.sleep(_POLL_S)
    _remove_everywhere(path, deadline)


def remove_emptied(path: str) -> None:
    """Removes a cgroup, with all below it, whose processes have ended or are about to. Kills nobody."""
    _remove_everywhere(path, time.monotonic() + _EMPTY_DEADLINE_S)


def _remove_everywhere(path: str, deadline: float) -> None:
    for hierarchy in hierarchies():
        _remove_tree(_directory(hierarchy, path), deadline)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _remove_tree(top: Path, deadline: float) -> None:
    for directory, _, _ in os.walk(top, topdown=False):
        while not _rmdir(directory):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cgroup {directory} stays busy")
            time.sleep(_POLL_S)


def _rmdir(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except OSError as err:
        if err.errno == errno.EBUSY:
            return False
        if err.errno not in _MISSING:
            raise
    return True


def remove_if_empty(path: str) -> None:
    """Removes a cgroup that nobody uses any more, in those hierarchies where that is so."""
    for hierarchy in hierarchies():
        try:
            os.rmdir(_directory(hierarchy, path))
        except OSError as err:
            if err.errno not in (*_MISSING, errno.EBUSY, errno.ENOTEMPTY):
                raise


def children(path: str) -> set[str]:
    """The names of the cgroups directly below one."""
    names: set[str] = set()
    for hierarchy in hierarchies():
        directory = _directory(hierarchy, path)
        if directory.is_dir():
            names.update(entry.name for entry in directory.iterdir() if entry.is_dir())
    return names


def _directory(hierarchy: Hierarchy, path: str) -> Path:
    return hierarchy.mount / path.lstrip("/")
