"""Claims, DataVolumes, throw-away layers over claims, and disks of the node: which disk each becomes."""

from __future__ import annotations

import os
from pathlib import Path

from virt_core.apis import names
from virt_core.apis.quantity import QuantityError, parse_bytes
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import PersistentVolumeClaimInfo
from virt_core.apis.volumemoves import moving
from virt_core.apis.volumes import HostDisk, Volume
from virt_launcher.disks import qcow2
from virt_launcher.disks.claim_disk import DiskFile, copy_is_whole, empty_file, room_of_file, use_device, use_file
from virt_launcher.disks.sources import DiskSource, supports_direct_io
from virt_launcher.errors import InvalidVMIError
from virt_launcher.settings import Paths

_STORAGE = "storage"
_MIB = 1 << 20


class ClaimDisks:
    def __init__(self, paths: Paths, vmi: VirtualMachineInstance) -> None:
        self._paths = paths
        self._info = {volume.name: volume.persistent_volume_claim_info for volume in vmi.status.volume_status}
        self._plugged = {volume.name for volume in vmi.status.volume_status if volume.hotplug_volume is not None}
        #: A disk that is on its way to another claim keeps its size until it is there.
        self._moving = moving(vmi.status)

    def source(self, volume: Volume, where: str) -> DiskSource | None:
        """None: the volume is of another kind. Raises InvalidVMIError."""
        if volume.persistent_volume_claim is not None:
            read_only = volume.persistent_volume_claim.read_only
            return self._claim(volume.name, f"{where}.persistentVolumeClaim", read_only=read_only)
        if volume.data_volume is not None:
            return self._claim(volume.name, f"{where}.dataVolume", read_only=False)
        if volume.ephemeral is not None:
            return self._layer(volume.name, f"{where}.ephemeral")
        if volume.host_disk is not None:
            return self._host_disk(volume.name, volume.host_disk, f"{where}.hostDisk")
        return None

    def room(self, volume: Volume, where: str) -> int:
        """How large the disk of a running machine may be by now; 0 for what is no claim's. Raises InvalidVMIError."""
        info = self._info.get(volume.name)
        if info is None or (volume.persistent_volume_claim is None and volume.data_volume is None):
            return 0
        if volume.name in self._moving:
            return 0
        if self._is_block(volume.name, info):
            return use_device(self._device(volume.name), where, read_only=True)[1]
        return room_of_file(self._file(volume.name, where, info, read_only=True))

    def make_room(self, volume: Volume, where: str, size: int) -> None:
        """For a disk of this size, which is about to be copied here. Raises InvalidVMIError."""
        info = self._info.get(volume.name) or PersistentVolumeClaimInfo()
        field = f"{where}.{'dataVolume' if volume.data_volume is not None else 'persistentVolumeClaim'}"
        if self._is_block(volume.name, info):
            has = use_device(self._device(volume.name), field, read_only=False)[1]
        else:
            has = _size(info) // _MIB * _MIB
        if has < size:
            words = f"claim {info.claim_name!r} has {has} bytes, and the disk that is to be copied there has {size}"
            raise InvalidVMIError(field, words)
        if not self._is_block(volume.name, info):
            empty_file(self._file(volume.name, field, info, read_only=False), size)

    def has_come(self, volume: Volume, where: str) -> None:
        """Of a disk that was copied here and is whole. Raises InvalidVMIError."""
        info = self._info.get(volume.name) or PersistentVolumeClaimInfo()
        if self._is_block(volume.name, info):
            return
        file = self._file(volume.name, where, info, read_only=False)
        try:
            copy_is_whole(file)
        except OSError as error:
            raise file.why_not(error) from error

    def _claim(self, name: str, field: str, *, read_only: bool) -> DiskSource:
        info = self._info.get(name) or PersistentVolumeClaimInfo()
        if self._is_block(name, info):
            return use_device(self._device(name), field, read_only=read_only)[0]
        return use_file(self._file(name, field, info, read_only=read_only), create=True)

    def _file(self, name: str, field: str, info: PersistentVolumeClaimInfo, *, read_only: bool) -> DiskFile:
        return DiskFile(
            self._paths.hotplug(name) if name in self._plugged else self._paths.disk_directory(name),
            names.FILE_DISK,
            field,
            size=_size(info) if name not in self._moving else 0,
            read_only=read_only,
            preallocated=info.preallocated,
            incoming=name in self._moving,
        )

    def _layer(self, name: str, field: str) -> DiskSource:
        """What the guest writes goes into a file of ours; the claim is only read."""
        info = self._info.get(name) or PersistentVolumeClaimInfo()
        if self._is_block(name, info):
            base, size = use_device(self._device(name), field, read_only=True)
        else:
            disk = DiskFile(self._paths.disk_directory(name), names.FILE_DISK, field, read_only=True)
            base = use_file(disk, create=False)
            size = os.stat(base.path, follow_symlinks=False).st_size
        backing = qcow2.Backing(base.path, base.format, block=base.block)
        overlay = self._paths.disk_data / name / "disk.qcow2"
        overlay.parent.mkdir(parents=True, exist_ok=True)
        if not overlay.exists():
            qcow2.create(overlay, size, backing)
        direct_io = base.direct_io and supports_direct_io(overlay)
        return DiskSource(str(overlay), "qcow2", backing, direct_io, identity=base.identity)

    def _host_disk(self, name: str, disk: HostDisk, field: str) -> DiskSource:
        """The Pod has the directory around it, at a place of ours."""
        create = disk.type == "DiskOrCreate"
        size = _bytes(disk.capacity, f"{field}.capacity") if create and disk.capacity is not None else 0
        file = DiskFile(self._paths.disk_directory(name), os.path.basename(disk.path), field, size=size)
        return use_file(file, create=create)

    def _device(self, name: str) -> Path:
        return self._paths.hotplug(name) if name in self._plugged else self._paths.devices / name

    def _is_block(self, name: str, info: PersistentVolumeClaimInfo) -> bool:
        if info.volume_mode:
            return info.volume_mode == names.VOLUME_MODE_BLOCK
        return self._device(name).is_block_device()


def _size(info: PersistentVolumeClaimInfo) -> int:
    """What was asked for or what there is, whichever is less; a claim that has grown counts with what it has."""
    asked = [sizes[_STORAGE] for sizes in (info.requests, info.capacity) if sizes.get(_STORAGE)]
    share = 1.0 - _overhead(info.filesystem_overhead)
    return int(min((parse_bytes(size) for size in asked), default=0) * share)


def _overhead(text: str | None) -> float:
    try:
        return min(max(float(text or 0), 0.0), 0.9)
    except ValueError:
        return 0.0


def _bytes(quantity: str | int | float, field: str) -> int:
    try:
        return parse_bytes(quantity)
    except QuantityError as error:
        raise InvalidVMIError(field, str(error)) from error
