"""The words of the device plugins: a pool of units, what one unit is, and what a container gets for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Unit:
    """What one count of a resource stands for."""

    id: str
    #: Device nodes that a container needs, as paths of the host.
    nodes: tuple[str, ...]
    healthy: bool = True
    #: How the launcher names it to libvirt: a PCI address, the UUID of a mediated device, bus and number on USB.
    address: str = ""
    numa: int | None = None


@dataclass(frozen=True, slots=True)
class Allotment:
    """What a container gets: device nodes (the same path inside as on the host), environment variables, mounts."""

    nodes: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    #: Directories, only to be read: where on the host, where inside.
    mounts: tuple[tuple[str, str], ...] = ()


class UnitGoneError(LookupError):
    """A unit that was asked for is not there, or not usable now."""


class Pool(Protocol):
    """The units of one resource."""

    @property
    def resource(self) -> str: ...

    def look(self) -> list[Unit]:
        """The units as they are now, in a stable order."""
        ...

    def paths(self) -> list[str]:
        """Host paths whose coming and going may change the answer."""
        ...

    def allot(self, ids: Iterable[str]) -> Allotment:
        """Raises UnitGoneError."""
        ...


_FIRST_PROCESS = "/proc/1/root"


class Host:
    """The node's own file tree, which a container sees beside its own: that of the node's first process.

    Where that one is closed to us (a node that is itself a container without hostPID), ours has to do.
    """

    def __init__(self, root: str | None = None) -> None:
        if root is None:
            root = _FIRST_PROCESS if os.path.isdir(f"{_FIRST_PROCESS}/dev") else "/"
        self._root = root.rstrip("/")

    def path(self, path: str) -> str:
        return self._root + path

    def device(self, path: str) -> os.stat_result | None:
        """The character device at that path, if there is one."""
        try:
            found = os.stat(self.path(path))
        except OSError:
            return None
        return found if stat.S_ISCHR(found.st_mode) else None

    def directories_of(self, path: str) -> list[str]:
        """The existing directories on the way to a path, as paths that we can watch."""
        found: list[str] = []
        parts = path.strip("/").split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            directory = self.path("/" + "/".join(parts[:depth]))
            if not os.path.isdir(directory):
                break
            found.append(directory)
        return found


def unique(paths: Iterable[str]) -> tuple[str, ...]:
    """Without repetition, in the order of their first mention."""
    return tuple(dict.fromkeys(paths))
