"""Disks of a running machine that grow with their claims. Never smaller: the guest's data may be anywhere on them."""

from __future__ import annotations

from collections.abc import Mapping

from virt_core.runtime.logs import get_logger
from virt_launcher.converge.changes import NeedsRestart
from virt_launcher.converge.kinds import DISK, OUR_ALIAS
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import LauncherError, NoMachineError, UnavailableError
from virt_launcher.hypervisor.ports import Hypervisor

log = get_logger(__name__)


def grow(hypervisor: Hypervisor, rooms: Mapping[str, int], live: Domain) -> tuple[NeedsRestart, ...]:
    """`rooms` says how large a volume's disk may be. Raises LauncherError with a sentence for each that failed. One
    that has only a part of its device, since it came from a smaller claim, may have to wait for a restart."""
    failures: list[str] = []
    waiting: list[NeedsRestart] = []
    for disk in live.devices.disks:
        volume, target = (disk.alias or "").removeprefix(OUR_ALIAS), disk.target or ""
        if volume not in rooms or disk.readonly or disk.device != "disk":
            continue
        try:
            _grow(hypervisor, volume, target, rooms[volume])
        except (UnavailableError, NoMachineError):
            raise
        except LauncherError as error:
            if disk.type == "block":
                waiting.append(NeedsRestart(DISK.field, f'disk "{volume}": it has a part of its device: {error}'))
                continue
            failures.append(f"disk {volume} was not made larger: {error}")
    if failures:
        raise LauncherError("; ".join(failures))
    return tuple(waiting)


def _grow(hypervisor: Hypervisor, volume: str, target: str, room: int) -> None:
    has = hypervisor.disk_size(target)
    if room > has:
        hypervisor.resize_disk(target, room)
        log.info("a disk has grown in the running machine", volume=volume, bytes_before=has, bytes=room)
