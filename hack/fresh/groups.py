"""A cgroup of its own for the bare machine, in every hierarchy of cgroup v1, v2 or both: the top of what it sees.

So its groups never meet those of the same name out here, and whatever is left goes with it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import runs

TOP = Path("/sys/fs/cgroup")
_CPUSET = ("cpuset.cpus", "cpuset.mems")
_REMOVE_S = 20.0


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted one: its type, the options that mount it again, and where it is."""

    type: str
    options: str
    place: Path

    def line(self) -> str:
        """For boot.sh."""
        return f"cgroup {self.type} {self.options} {str(self.place).lstrip('/')}"


def hierarchies(mounts: str) -> list[Hierarchy]:
    """From /proc/self/mounts. Of the options only the controllers and names count."""
    found = []
    for line in mounts.splitlines():
        _, place, kind, options = line.split()[:4]
        if not Path(place).is_relative_to(TOP):
            continue
        if kind == "cgroup2":
            found.append(Hierarchy(kind, "rw", Path(place)))
        elif kind == "cgroup":
            named = [word for word in options.split(",") if word.startswith("name=")]
            found.append(Hierarchy(kind, ",".join(["none", *named] if named else controllers(options)), Path(place)))
    return found


def controllers(options: str) -> list[str]:
    known = {line.split()[0] for line in Path("/proc/cgroups").read_text().splitlines()[1:]}
    return [word for word in options.split(",") if word in known]


@contextlib.contextmanager
def own(name: str) -> Iterator[list[Hierarchy]]:
    """Hierarchies in which the group `name` has been made; none where groups cannot be made."""
    all_of_them = hierarchies(Path("/proc/self/mounts").read_text())
    for dead in {path.name for hierarchy in all_of_them for path in runs.dead(hierarchy.place)}:
        _remove(all_of_them, dead)
    try:
        try:
            for hierarchy in all_of_them:
                _make(hierarchy.place, name)
        except OSError as error:
            print(f"== no cgroup of its own, because none can be made: {error}", flush=True)
            _remove(all_of_them, name)
            all_of_them = []
        yield all_of_them
    finally:
        _remove(all_of_them, name)


def _make(place: Path, name: str) -> None:
    group = place / name
    if (place / "cgroup.controllers").exists():
        for controller in (place / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):  # Not all can be handed down everywhere; the tests say what they miss.
                (place / "cgroup.subtree_control").write_text(f"+{controller}")
    group.mkdir()
    for file in _CPUSET:
        if (group / file).exists() and not (group / "cgroup.controllers").exists():
            (group / file).write_text((place / file).read_text())


def _remove(found: list[Hierarchy], name: str) -> None:
    """Bottom up. The last processes may still be leaving."""
    deadline = time.monotonic() + _REMOVE_S
    for hierarchy in found:
        for folder, _, _ in os.walk(hierarchy.place / name, topdown=False):
            while os.path.isdir(folder) and not _rmdir(folder) and time.monotonic() < deadline:
                time.sleep(0.05)


def _rmdir(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return False
    return True
