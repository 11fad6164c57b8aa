"""The cgroups of a process as files that a child of ours can be written into, whatever hierarchies the node has.

virt-handler's container may see only its own part of a hierarchy (version 1), or a cgroup namespace of its own
(version 2). The node's first process sees all of them, so its mounts are the second place to look, and its namespace
is the one to look from. Whether a folder is the right one is not a matter of belief: the process is in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from virt_netsetup.model import NetsetupError, Value

#: Our own mounts, then those of the node's first process.
VIEWS = (("self", ""), ("1", "/proc/1/root"))
_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(Value, frozen=True):
    """A hierarchy as it is mounted somewhere; `root` is the cgroup that the mount point stands for."""

    point: str
    root: str
    unified: bool
    options: frozenset[str]

    def has(self, controllers: str) -> bool:
        """`controllers` as /proc/PID/cgroup writes them: none for version 2."""
        return self.unified if not controllers else not self.unified and self.options.issuperset(controllers.split(","))

    def folder(self, path: str) -> Path | None:
        root = self.root.rstrip("/")
        inside = path == root or path.startswith(f"{root}/")
        return Path(self.point + path[len(root) :]) if inside else None


def parse_mounts(mountinfo: str, prefix: str = "") -> list[Mount]:
    found = []
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, point = (_plain(word) for word in head.split(" ")[3:5])
            found.append(Mount(prefix + point, root, kind == "cgroup2", frozenset(options.split(","))))
    return found


def _plain(word: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), word)


def parse_cgroups(text: str) -> dict[str, str]:
    """The path in each hierarchy, by its controllers."""
    lines = (line.split(":", 2) for line in text.splitlines())
    return {controllers: path for _, controllers, path in lines}


def own_cgroups() -> dict[str, str]:
    return parse_cgroups(Path("/proc/self/cgroup").read_text())


def files_of(pid: int, but_not: dict[str, str] | None = None) -> list[Path]:
    """The cgroup.procs of each cgroup that the process is in and we are not. Raises NetsetupError."""
    known = own_cgroups() if but_not is None else but_not
    theirs = parse_cgroups(Path(f"/proc/{pid}/cgroup").read_text())
    mounts = [mount for who, prefix in VIEWS for mount in _mounts(who, prefix)]
    return list(_files({key: path for key, path in theirs.items() if path != known.get(key)}, mounts, pid))


def _mounts(who: str, prefix: str) -> list[Mount]:
    try:
        return parse_mounts(Path(f"/proc/{who}/mountinfo").read_text(), prefix)
    except OSError:
        return []


def _files(wanted: dict[str, str], mounts: list[Mount], pid: int) -> Iterator[Path]:
    mounted = {key: path for key, path in wanted.items() if any(mount.has(key) for mount in mounts)}
    for controllers, path in mounted.items():
        folders = (mount.folder(path) for mount in mounts if mount.has(controllers))
        file = next((folder / "cgroup.procs" for folder in folders if folder is not None and _holds(folder, pid)), None)
        if file is None:
            raise NetsetupError(
                "cgroup", f"the Pod's cgroup {path} ({controllers or 'version 2'}) is not visible to virt-netsetup"
            )
        yield file
    if wanted and not mounted:
        raise NetsetupError("cgroup", "virt-netsetup sees no mounted cgroup hierarchy")


def _holds(folder: Path, pid: int) -> bool:
    try:
        return str(pid) in (folder / "cgroup.procs").read_text().split()
    except OSError:
        return False


def is_foreign_namespace(who: str = "1") -> bool:
    """Whether our view of cgroups begins elsewhere than that of another process."""
    try:
        return os.readlink(f"/proc/{who}/ns/cgroup") != os.readlink("/proc/self/ns/cgroup")
    except OSError:
        return False
