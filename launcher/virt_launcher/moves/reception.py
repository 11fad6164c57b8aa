"""A machine moves in: what it will find here is made before it comes. Imported when one does."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from virt_core.apis.coming import without_coming
from virt_core.apis.travel import checksum_of, generated, moved, size_of, to_compare
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumes import Volume
from virt_launcher.convert.context import Context
from virt_launcher.convert.converter import convert
from virt_launcher.disks.checksums import checksum
from virt_launcher.disks.claims import ClaimDisks
from virt_launcher.disks.prepare import DiskPreparer, Prepared
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError
from virt_launcher.settings import Paths


@dataclass(frozen=True, slots=True)
class Expected:
    """What was made ready, and the machine that fits it. Its CPUs may be others than on the other side."""

    prepared: Prepared
    context: Context
    domain: Domain


def make_ready(
    vmi: VirtualMachineInstance,
    preparer: DiskPreparer,
    paths: Paths,
    context_of: Callable[[VirtualMachineInstance, Prepared], Context],
) -> Expected:
    """Raises InvalidVMIError, with what is missing here."""
    vmi = replace(vmi, spec=without_coming(vmi.spec, vmi.status))
    _make_room(vmi, paths)
    prepared = preparer.prepare(vmi, arriving=True)
    _compare(vmi, prepared)
    context = context_of(vmi, prepared)
    return Expected(prepared, context, convert(context))


def _make_room(vmi: VirtualMachineInstance, paths: Paths) -> None:
    """Files that the other side's bytes are copied onto, so that none is made from what a Secret says today."""
    known = {status.name: status for status in vmi.status.volume_status}
    places = {volume.name: f"spec.volumes[{index}]" for index, volume in enumerate(vmi.spec.volumes)}
    for volume in moved(vmi):
        size = size_of(known.get(volume.name))
        if not size:
            raise InvalidVMIError(places[volume.name], "nobody has said how large the disk is that is to be copied")
        ClaimDisks(paths, vmi).make_room(volume, places[volume.name], size)
    for volume in generated(vmi):
        size = size_of(known.get(volume.name))
        path = generated_path(volume, paths)
        if not size or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            os.truncate(fd, size)
        finally:
            os.close(fd)


def settle(vmi: VirtualMachineInstance, paths: Paths) -> None:
    """The machine is here, and so are its disks. Raises InvalidVMIError."""
    places = {volume.name: f"spec.volumes[{index}]" for index, volume in enumerate(vmi.spec.volumes)}
    for volume in moved(vmi):
        ClaimDisks(paths, vmi).has_come(volume, places[volume.name])


def generated_path(volume: Volume, paths: Paths) -> Path:
    of_cloud_init = volume.cloud_init_no_cloud is not None or volume.cloud_init_config_drive is not None
    return (paths.cloud_init if of_cloud_init else paths.file_disks) / f"{volume.name}.iso"


def _compare(vmi: VirtualMachineInstance, prepared: Prepared) -> None:
    known = {status.name: status for status in vmi.status.volume_status}
    places = {volume.name: index for index, volume in enumerate(vmi.spec.volumes)}
    for volume in to_compare(vmi):
        told, below = checksum_of(known.get(volume.name)), prepared.sources[volume.name].backing
        if told and below is not None and checksum(below.path) != told:
            image = volume.container_disk.image if volume.container_disk is not None else ""
            raise InvalidVMIError(
                f"spec.volumes[{places[volume.name]}].containerDisk.image",
                f"{image!r} is another image on this node than the one that the guest runs on; name it by its digest",
            )


def facts_of(
    vmi: VirtualMachineInstance, domain: Domain, paths: Paths, disk_size: Callable[[str], int]
) -> dict[str, tuple[int, int]]:
    """On the side that it leaves: checksum and size, by volume, of what the other side compares or makes room for.
    `disk_size` knows a disk by its target."""
    below = {
        (disk.alias or "").removeprefix("ua-"): disk.backing_store.source_file
        for disk in domain.devices.disks
        if disk.backing_store is not None and disk.backing_store.source_file
    }
    found = {volume.name: (checksum(below[volume.name]), 0) for volume in to_compare(vmi) if volume.name in below}
    for volume in generated(vmi):
        found[volume.name] = (0, generated_path(volume, paths).stat().st_size)
    targets = {(disk.alias or "").removeprefix("ua-"): disk.target for disk in domain.devices.disks}
    for volume in moved(vmi):
        if target := targets.get(volume.name):
            found[volume.name] = (0, disk_size(target))
    return found
