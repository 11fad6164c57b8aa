"""What our own programs may change of a VMI's volumes while it runs: add and remove hot-plugged ones, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from virt_api.admission.causes import Cause, Refused, duplicate, invalid, required
from virt_api.admission.document import read
from virt_api.admission.vm.requests import hotplug_disk
from virt_core.apis.devices import Disk
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.apis.volumes import Volume
from virt_core.kube.configvalues import ClusterConfig

_VOLUMES = "spec.volumes"
_UTILITY = "spec.utilityVolumes"


def changed_volumes(new: dict[str, Any], old: dict[str, Any], config: ClusterConfig) -> Iterator[Cause]:
    try:
        after = read(new.get("spec"), VirtualMachineInstanceSpec, "spec")
        before = read(old.get("spec"), VirtualMachineInstanceSpec, "spec")
    except Refused as refused:
        yield from refused.causes
        return
    status = new.get("status") or {}
    listed = status.get("volumeStatus") or []
    fixed = {entry.get("name") for entry in listed if isinstance(entry, dict) and "hotplugVolume" not in entry}
    # Also back to where they were.
    moves = [*(status.get("migratedVolumes") or []), *((old.get("status") or {}).get("migratedVolumes") or [])]
    moved = {entry.get("volumeName") for entry in moves if isinstance(entry, dict)}
    yield from _utility_volumes(after, before, fixed, config)
    if problem := _unshown(after):
        yield invalid(_VOLUMES, problem)
        return
    yield from _fixed(after, before, fixed, moved)
    yield from _plugged(after, before, fixed, moved)
    leaving = {entry.get("name") for entry in listed if isinstance(entry, dict)} - {v.name for v in before.volumes}
    for volume in after.volumes:
        if volume.name in leaving:
            yield invalid(_VOLUMES, f"{volume.name!r} is still being detached; add it when its status is gone")


def _unshown(spec: VirtualMachineInstanceSpec) -> str:
    """Volumes and what shows them must come in pairs; an empty CD-ROM drive needs no volume."""
    needed = {volume.name for volume in spec.volumes if volume.memory_dump is None}
    devices = spec.domain.devices
    shown = {disk.name for disk in devices.disks if disk.name in needed or disk.cdrom is None}
    shown |= {filesystem.name for filesystem in devices.filesystems}
    return "" if needed == shown else f"volumes and disks do not match: {', '.join(sorted(needed ^ shown))}"


def _disks(spec: VirtualMachineInstanceSpec) -> dict[str, Disk]:
    return {disk.name: disk for disk in spec.domain.devices.disks}


def _split(spec: VirtualMachineInstanceSpec, fixed: set[Any], *, permanent: bool) -> dict[str, Volume]:
    return {volume.name: volume for volume in spec.volumes if (volume.name in fixed) is permanent}


def _fixed(
    after: VirtualMachineInstanceSpec, before: VirtualMachineInstanceSpec, fixed: set[Any], moved: set[Any]
) -> Iterator[Cause]:
    new, old = _split(after, fixed, permanent=True), _split(before, fixed, permanent=True)
    if set(new) != set(old):
        yield invalid(_VOLUMES, "permanent volumes can neither be added nor removed")
        return
    disks, old_disks = _disks(after), _disks(before)
    for name, volume in new.items():
        if volume != old[name] and name not in moved:
            yield invalid(_VOLUMES, f"the permanent volume {name!r} cannot be changed")
        if disks.get(name) != old_disks.get(name):
            yield invalid("spec.domain.devices.disks", f"the disk of the permanent volume {name!r} cannot be changed")


def _plugged(
    after: VirtualMachineInstanceSpec, before: VirtualMachineInstanceSpec, fixed: set[Any], moved: set[Any]
) -> Iterator[Cause]:
    old = _split(before, fixed, permanent=False)
    disks, old_disks = _disks(after), _disks(before)
    for name, volume in _split(after, fixed, permanent=False).items():
        if name in old:
            if volume != old[name] and name not in moved:
                yield invalid(_VOLUMES, f"the hot-plugged volume {name!r} cannot be changed")
            if disks.get(name) != old_disks.get(name):
                yield invalid(
                    "spec.domain.devices.disks", f"the disk of the hot-plugged volume {name!r} cannot be changed"
                )
        elif not (volume.data_volume or volume.persistent_volume_claim or volume.memory_dump):
            yield invalid(_VOLUMES, f"{name!r} is neither a DataVolume nor a claim; only those can be hot-plugged")
        elif volume.memory_dump is None and name not in old_disks:
            yield from hotplug_disk(disks.get(name), name, "spec.domain.devices.disks")


def _utility_volumes(
    after: VirtualMachineInstanceSpec, before: VirtualMachineInstanceSpec, fixed: set[Any], config: ClusterConfig
) -> Iterator[Cause]:
    of_backups = config.has("IncrementalBackup") and all(each.type == "Backup" for each in after.utility_volumes)
    if after.utility_volumes and not of_backups and not config.has("UtilityVolumes"):
        yield invalid(_UTILITY, "needs the feature gate UtilityVolumes")
        return
    taken = {volume.name for volume in after.volumes}
    old = {volume.name: volume for volume in before.utility_volumes}
    for i, volume in enumerate(after.utility_volumes):
        if not volume.name:
            yield required(f"{_UTILITY}[{i}].name", "must be given")
        elif volume.name in taken:
            yield duplicate(f"{_UTILITY}[{i}].name", f"another volume is called {volume.name!r}")
        taken.add(volume.name)
        if not volume.claim_name:
            yield required(f"{_UTILITY}[{i}].claimName", "must be given")
        if volume.name in fixed:
            yield invalid(_UTILITY, f"{volume.name!r} is a permanent volume")
        if volume.name in old and volume != old[volume.name]:
            yield invalid(_UTILITY, f"{volume.name!r} cannot be changed")
