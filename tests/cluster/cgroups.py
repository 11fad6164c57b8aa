"""A cgroup for each node in every hierarchy, on hosts with cgroup v1, v2 or both, and their removal.

The kubelet makes everything below the one it is given, but not that one itself. In v1 a new cpuset has neither
processors nor memory and takes no process before it has; in v2 controllers must be handed down level by level.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from .errors import ClusterError

ROOT = Path("/sys/fs/cgroup")
_V2_MARK = "cgroup.controllers"
_CPUSET = ("cpuset.cpus", "cpuset.mems")
_DEADLINE_S = 10.0


def hierarchies(root: Path = ROOT) -> list[Path]:
    """Where cgroups are made: the root itself on a pure v2 host, else one directory for each hierarchy."""
    if (root / _V2_MARK).exists():
        return [root]
    return sorted(path for path in root.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink())


def make(path: str, root: Path = ROOT) -> None:
    """`path` in every hierarchy, ready for the kubelet."""
    for hierarchy in hierarchies(root):
        here = hierarchy
        for part in path.split("/"):
            _hand_down(here)
            here = here / part
            here.mkdir(exist_ok=True)
            _fill_cpuset(here)
        _hand_down(here)


def _fill_cpuset(path: Path) -> None:
    """v1 only; v2's cpuset is never empty in effect and its files may be read-only here."""
    if (path / _V2_MARK).exists():
        return
    for name in _CPUSET:
        file = path / name
        if file.exists() and not file.read_text().strip():
            file.write_text((path.parent / name).read_text())


def _hand_down(path: Path) -> None:
    """v2: what the group has, its children get. The hybrid host's v2 hierarchy has no controllers at all."""
    marks = path / _V2_MARK
    if not marks.exists():
        return
    switch = path / "cgroup.subtree_control"
    missing = set(marks.read_text().split()) - set(switch.read_text().split())
    for controller in sorted(missing):
        _enable(switch, controller)


def _enable(switch: Path, controller: str) -> None:
    try:
        switch.write_text(f"+{controller}")
    except OSError as err:
        if err.errno != errno.EBUSY:
            return  # This kernel does not let it be handed down; the kubelet says so if it needs it.
        # In a container the visible root has processes of its own, and such a group hands nothing down.
        _move_aside(switch.parent)
        switch.write_text(f"+{controller}")


def _move_aside(group: Path) -> None:
    aside = group / "virtpod-cluster-outside"
    aside.mkdir(exist_ok=True)
    for pid in (group / "cgroup.procs").read_text().split():
        try:
            (aside / "cgroup.procs").write_text(pid)
        except OSError:
            continue  # It ended meanwhile, or it is the kernel's.


def existing(path: str, root: Path = ROOT) -> list[Path]:
    return [hierarchy / path for hierarchy in hierarchies(root) if (hierarchy / path).is_dir()]


def processes(path: str, root: Path = ROOT) -> set[int]:
    """Everything that runs in the group or below it, in any hierarchy."""
    found: set[int] = set()
    for top in existing(path, root):
        for file in top.rglob("cgroup.procs"):
            try:
                found.update(int(pid) for pid in file.read_text().split())
            except OSError:
                continue  # The group went away while we looked.
    return found


def remove(path: str, root: Path = ROOT) -> bool:
    """Bottom up; processes that were killed a moment ago may still be leaving. False: there was none."""
    tops = existing(path, root)
    deadline = time.monotonic() + _DEADLINE_S
    for top in tops:
        for directory, _, _ in os.walk(top, topdown=False):
            _rmdir(Path(directory), deadline)
    return bool(tops)


def _rmdir(path: Path, deadline: float) -> None:
    while True:
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as err:
            if err.errno != errno.EBUSY or time.monotonic() > deadline:
                raise ClusterError(f"The cgroup {path} could not be removed: {err.strerror}.") from err
        time.sleep(0.05)
