"""Rules about disks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from virt_api.admission.causes import Cause, invalid, not_supported, one_of, required
from virt_api.admission.rules.base import PCI_ADDRESS, Check, boot_order, is_dns_label
from virt_core.apis.devices import Disk
from virt_core.apis.reservations import reserving
from virt_core.apis.volumes import is_hotplug

BUSES = ("virtio", "scsi", "sata", "usb")
CACHES = ("none", "writethrough", "writeback")
ERROR_POLICIES = ("stop", "ignore", "report", "enospace")
_SERIAL = re.compile(r"[A-Za-z0-9_.+-]+")
_SERIAL_LIMIT = 256
_BLOCK_SIZES = range(512, 2097152 + 1)


def disk_names(check: Check) -> Iterator[Cause]:
    volumes = {volume.name: volume for volume in check.spec.volumes}
    seen: set[str] = set()
    for i, disk in enumerate(check.spec.domain.devices.disks):
        field = f"{check.devices}.disks[{i}].name"
        if not is_dns_label(disk.name):
            yield invalid(field, f"{disk.name!r} must be a DNS label: lower case letters, digits and '-'")
        if disk.name in seen:
            yield invalid(f"{check.devices}.disks[{i}]", f"two disks are called {disk.name!r}")
        seen.add(disk.name)
        if disk.name not in volumes and disk.cdrom is None:  # A CD-ROM drive may be empty.
            yield invalid(field, f"there is no volume {disk.name!r} in {check.path}.volumes")


def disk_targets(check: Check) -> Iterator[Cause]:
    volumes = {volume.name: volume for volume in check.spec.volumes}
    for i, disk in enumerate(check.spec.domain.devices.disks):
        field = f"{check.devices}.disks[{i}]"
        if sum(target is not None for target in (disk.disk, disk.lun, disk.cdrom)) > 1:
            yield invalid(field, "only one of disk, lun and cdrom can be given")
        volume = volumes.get(disk.name)
        if disk.lun is not None and volume is not None and not (volume.persistent_volume_claim or volume.data_volume):
            yield invalid(f"{field}.lun", "a lun needs a persistentVolumeClaim or a dataVolume")


def disk_buses(check: Check) -> Iterator[Cause]:
    for i, disk in enumerate(check.spec.domain.devices.disks):
        field = f"{check.devices}.disks[{i}]"
        for name, target in (("disk", disk.disk), ("lun", disk.lun), ("cdrom", disk.cdrom)):
            bus = target.bus if target is not None else ""
            if bus and bus not in BUSES:
                yield invalid(f"{field}.{name}.bus", one_of(bus, BUSES))
            elif name == "cdrom" and bus == "virtio":
                yield invalid(f"{field}.cdrom.bus", "a CD-ROM drive cannot be on the virtio bus")
        if disk.disk is not None and disk.disk.bus == "sata" and disk.disk.read_only:
            yield invalid(f"{field}.disk.bus", "a read-only disk cannot be on the sata bus")


def disk_pci_addresses(check: Check) -> Iterator[Cause]:
    for i, disk in enumerate(check.spec.domain.devices.disks):
        if disk.disk is None or not disk.disk.pci_address:
            continue
        field = f"{check.devices}.disks[{i}].disk.pciAddress"
        if disk.disk.bus != "virtio":
            yield invalid(field, "only a virtio disk has a PCI address")
        elif not PCI_ADDRESS.fullmatch(disk.disk.pci_address):
            yield invalid(field, f"{disk.disk.pci_address!r} is not a PCI address such as 0000:81:01.0")


def boot_orders(check: Check) -> Iterator[Cause]:
    taken: set[int] = set()
    for i, disk in enumerate(check.spec.domain.devices.disks):
        yield from boot_order(f"{check.devices}.disks[{i}].bootOrder", disk.boot_order, taken)
    for i, interface in enumerate(check.spec.domain.devices.interfaces):
        yield from boot_order(f"{check.devices}.interfaces[{i}].bootOrder", interface.boot_order, taken)


def disk_options(check: Check) -> Iterator[Cause]:
    for i, disk in enumerate(check.spec.domain.devices.disks):
        field = f"{check.devices}.disks[{i}]"
        if disk.serial and not (_SERIAL.fullmatch(disk.serial) and len(disk.serial) <= _SERIAL_LIMIT):
            yield invalid(f"{field}.serial", f"must be at most {_SERIAL_LIMIT} letters, digits and _.+-")
        if disk.cache and disk.cache not in CACHES:
            yield invalid(f"{field}.cache", one_of(disk.cache, CACHES))
        if disk.io not in ("", "native", "threads"):
            yield not_supported(f"{field}.io", one_of(disk.io, ("native", "threads")))
        if disk.error_policy is not None and disk.error_policy not in ERROR_POLICIES:
            yield invalid(f"{field}.errorPolicy", one_of(disk.error_policy, ERROR_POLICIES))
        if disk.dedicated_io_thread and _bus(disk) != "virtio":
            yield not_supported(field, "dedicatedIOThread needs the virtio bus")


def block_sizes(check: Check) -> Iterator[Cause]:
    for i, disk in enumerate(check.spec.domain.devices.disks):
        if disk.block_size is not None:
            yield from _block_size(f"{check.devices}.disks[{i}].blockSize", disk)


def _block_size(field: str, disk: Disk) -> Iterator[Cause]:
    size = disk.block_size
    if size is None or size.custom is None:
        return
    if size.match_volume is not None and size.match_volume.enabled is not False:
        yield invalid(field, "custom and matchVolume cannot be given together")
        return
    custom = size.custom
    for name, value in (("logical", custom.logical), ("physical", custom.physical)):
        if value not in _BLOCK_SIZES or value & (value - 1):
            yield invalid(f"{field}.custom.{name}", f"{value} is not a power of 2 from 512 to 2097152")
    if custom.logical > custom.physical:
        yield invalid(f"{field}.custom.logical", "must not exceed physical")
    if _bus(disk) == "sata" and custom.logical != 512:
        yield invalid(f"{field}.custom.logical", "must be 512 on the sata bus")
    if custom.discard_granularity and custom.logical and custom.discard_granularity % custom.logical:
        yield invalid(f"{field}.custom.discardGranularity", "must be a multiple of logical")


def downward_metrics_disks(check: Check) -> Iterator[Cause]:
    names = {volume.name for volume in check.spec.volumes if volume.downward_metrics is not None}
    for i, disk in enumerate(check.spec.domain.devices.disks):
        if disk.name not in names:
            continue
        field = f"{check.devices}.disks[{i}]"
        if disk.disk is None:
            yield required(f"{field}.disk", "a downwardMetrics volume must be a plain disk")
        elif disk.disk.bus not in ("", "virtio"):
            yield invalid(f"{field}.disk.bus", "a downwardMetrics volume must be on the virtio bus")


def lun_reservations(check: Check) -> Iterator[Cause]:
    wanted = reserving(check.spec)
    if wanted and not check.config.persistent_reservation:
        yield invalid(f"{check.devices}.disks.luns.reservation", "the cluster does not allow persistent reservations")
    for index, volume in enumerate(check.spec.volumes):
        if volume.name in wanted and is_hotplug(volume):
            why = "a disk that the guest may reserve must be there from the start, so its volume cannot be hotpluggable"
            yield invalid(f"{check.path}.volumes[{index}]", why)


def filesystems(check: Check) -> Iterator[Cause]:
    volumes = {volume.name: volume for volume in check.spec.volumes}
    for filesystem in check.spec.domain.devices.filesystems:
        volume = volumes.get(filesystem.name)
        stored = volume is not None and (volume.persistent_volume_claim or volume.data_volume)
        if stored and not check.config.has("EnableVirtioFsStorageVolumes"):
            yield invalid(f"{check.devices}.filesystems", "needs the feature gate EnableVirtioFsStorageVolumes")


def _bus(disk: Disk) -> str:
    for target in (disk.disk, disk.lun, disk.cdrom):
        if target is not None:
            return target.bus
    return ""
