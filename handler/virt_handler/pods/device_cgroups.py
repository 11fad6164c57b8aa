"""Lets the processes of a launcher's container use a block device that it was not started with, or no longer.

Version 1 of cgroups has files for that. In version 2 a small program in the kernel decides; ours is that of the
container runtime with a question of our own before it (`device_program`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from virt_core.runtime import mounts
from virt_handler.node.devices.units import Host
from virt_handler.pods import device_program

_DEVICES = "devices"
_MOUNTS = "/sys/fs/cgroup"


class NoCgroupError(OSError):
    """The container's cgroup is not to be seen from here."""


def allow(pid: int, device: int, host: Host) -> None:
    _change(pid, device, host, allowed=True)


def deny(pid: int, device: int, host: Host) -> None:
    _change(pid, device, host, allowed=False)


def _change(pid: int, device: int, host: Host, *, allowed: bool) -> None:
    hierarchies = dict(_cgroups(pid))
    if _DEVICES in hierarchies:
        folder = _folder(host, hierarchies[_DEVICES], pid, f"{_MOUNTS}/{_DEVICES}")
        rule = f"b {os.major(device)}:{os.minor(device)} rwm"
        (folder / ("devices.allow" if allowed else "devices.deny")).write_text(rule)
        return
    folder = _folder(host, hierarchies.get("", "/"), pid, _MOUNTS, f"{_MOUNTS}/unified")
    for each in (folder, *_around(folder)):
        device_program.change(each, os.major(device), os.minor(device), allowed=allowed)


def _around(folder: Path) -> Iterator[Path]:
    """crun puts the container below the cgroup that its rules are for."""
    if folder.name == "container":
        yield folder.parent


def _as_the_node_sees(path: Path) -> str:
    """Whoever has a view of cgroups of his own reads paths from there. The node's first process has the node's; where
    that one is closed to us, ours has to do."""
    try:
        node = os.open("/proc/1/ns/cgroup", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return path.read_text()
    try:
        if os.fstat(node).st_ino == os.stat("/proc/self/ns/cgroup").st_ino:
            return path.read_text()
        return mounts.in_namespace(node, path.read_text, mounts.CLONE_NEWCGROUP)
    finally:
        os.close(node)


def _cgroups(pid: int) -> Iterator[tuple[str, str]]:
    for line in _as_the_node_sees(Path(f"/proc/{pid}/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _folder(host: Host, path: str, pid: int, *places: str) -> Path:
    """The one that holds the process: that is no matter of belief."""
    for place in places:
        folder = Path(host.path(place) + path)
        try:
            if str(pid) in (folder / "cgroup.procs").read_text().split():
                return folder
        except OSError:
            continue
    raise NoCgroupError(f"the cgroup {path} of process {pid} is not visible to virt-handler")
