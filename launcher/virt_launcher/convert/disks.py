"""The guest's disks, and the threads that do their IO."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.devices import CDRomTarget, DiskTarget
from virt_core.apis.devices import Disk as DiskSpec
from virt_launcher.convert.context import Context
from virt_launcher.convert.cpu import topology_of
from virt_launcher.convert.pci import parse_address
from virt_launcher.disks.sources import DiskSource
from virt_launcher.domain.devices import Address
from virt_launcher.domain.disks import BackingStore, Disk, Reservations
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError

#: Prefix of the device name that the guest would choose, by bus.
_PREFIXES = {"virtio": "vd", "sata": "sd", "scsi": "sd", "usb": "sd"}
_SATA_PORTS = 6
#: QEMU has no other there.
_SATA_SECTOR = 512
#: libvirt that can tell QEMU what a discard covers.
GRANULARITY_SINCE = 9_007_000


def configure_disks(context: Context, domain: Domain) -> None:
    taken: dict[str, int] = {}
    for index, spec in enumerate(context.vmi.spec.domain.devices.disks):
        path = f"spec.domain.devices.disks[{index}]"
        disk = _disk(context, spec, path)
        prefix = prefix_of(disk)
        number = taken[prefix] = taken.get(prefix, -1) + 1
        disk.target = prefix + letters(number)
        if disk.bus == "scsi":
            disk.address = Address(type="drive", controller=0, bus="0", target=0, unit=number)
        elif disk.bus == "sata":
            controller, unit = divmod(number, _SATA_PORTS)
            disk.address = Address(type="drive", controller=controller, bus="0", target=0, unit=unit)
        domain.devices.disks.append(disk)


def _disk(context: Context, spec: DiskSpec, path: str) -> Disk:
    disk = Disk(type="file", driver_name="qemu", discard="unmap", alias=f"ua-{spec.name}")
    _set_kind(context, disk, spec, path)
    _set_source(disk, context.sources.get(spec.name), spec, path)
    disk.error_policy = spec.error_policy or "stop"
    # Behind a lun the guest meets the device itself, with its own.
    disk.serial = spec.serial or None if disk.device != "lun" else None
    disk.boot_order = spec.boot_order
    disk.shareable = bool(spec.shareable)
    _set_block_sizes(context, disk, spec)
    if context.vmi.spec.domain.devices.block_multi_queue and disk.bus == "virtio":
        disk.queues = topology_of(context).vcpus
    return disk


def _set_kind(context: Context, disk: Disk, spec: DiskSpec, path: str) -> None:
    target = spec.cdrom or spec.lun or spec.disk or DiskTarget()
    disk.device = "cdrom" if spec.cdrom is not None else "lun" if spec.lun is not None else "disk"
    disk.bus = target.bus or context.architecture.disk_bus
    if disk.bus not in _PREFIXES:
        raise InvalidVMIError(f"{path}.{disk.device}.bus", f"{disk.bus!r} is not one of {', '.join(_PREFIXES)}")
    if disk.bus == "virtio":
        disk.model = context.virtio_model
    if isinstance(target, CDRomTarget):
        disk.readonly = target.read_only is not False
        disk.tray = "open" if target.tray == "open" else None
    else:
        disk.readonly = bool(target.read_only)
        if isinstance(target, DiskTarget) and target.pci_address:
            disk.address = parse_address(target.pci_address, f"{path}.disk.pciAddress")


def _set_source(disk: Disk, source: DiskSource | None, spec: DiskSpec, path: str) -> None:
    if source is None and spec.cdrom is not None:
        disk.driver_type, disk.discard = "raw", None  # A drive without a medium.
        return
    if source is None:
        raise InvalidVMIError(f"{path}.name", f"there is no volume {spec.name!r} for this disk")
    disk.driver_type = source.format
    _point(disk, source)
    disk.readonly = disk.readonly or source.read_only
    if spec.lun is not None and not source.block:
        raise InvalidVMIError(f"{path}.lun", f"volume {spec.name!r} is not a block device; use a claim in block mode")
    if spec.lun is not None and disk.bus != "scsi":
        raise InvalidVMIError(f"{path}.lun.bus", "a lun must be on the scsi bus")
    if spec.lun is not None and spec.lun.reservation:
        disk.reservations = Reservations(managed=False, type="unix", path=names.SOCKET_RESERVATIONS, mode="client")
    if source.preallocated:
        disk.discard = None
    if spec.shareable and source.format != "raw":
        raise InvalidVMIError(
            f"{path}.shareable", f"volume {spec.name!r} belongs to this VM alone and cannot be shared"
        )
    if spec.cache == "none" and not source.direct_io:
        message = "the volume's filesystem cannot do direct IO; use writethrough or writeback"
        raise InvalidVMIError(f"{path}.cache", message)
    disk.cache = spec.cache or ("none" if source.direct_io or spec.shareable else "writethrough")
    quick = disk.cache == "none" and (source.block or source.preallocated)
    disk.io = spec.io or ("native" if quick else None)


def _set_block_sizes(context: Context, disk: Disk, spec: DiskSpec) -> None:
    if spec.block_size is not None and spec.block_size.custom is not None:
        disk.logical_block_size = spec.block_size.custom.logical
        disk.physical_block_size = spec.block_size.custom.physical
        disk.discard_granularity = spec.block_size.custom.discard_granularity
        return
    source = context.sources.get(spec.name)
    if source is None or source.blocks is None or disk.device != "disk":
        return  # A drive has the sectors of its medium, and behind a lun the guest meets the device itself.
    disk.logical_block_size = _SATA_SECTOR if disk.bus == "sata" else source.blocks.logical
    disk.physical_block_size = source.blocks.physical
    if context.libvirt_version >= GRANULARITY_SINCE:
        disk.discard_granularity = source.blocks.discard or None


def _point(disk: Disk, source: DiskSource) -> None:
    """Where the bytes are, and what they stand on."""
    if source.block:
        disk.type, disk.source_dev = "block", source.path
    else:
        disk.source_file = source.path
    if (below := source.backing) is not None:
        disk.backing_store = BackingStore(type="block" if below.block else "file", format=below.format)
        if below.block:
            disk.backing_store.source_dev = below.path
        else:
            disk.backing_store.source_file = below.path


def prefix_of(disk: Disk) -> str:
    """How the names of such disks begin: vd or sd."""
    return _PREFIXES[disk.bus or "sata"]


def letters(number: int) -> str:
    """0 → a, 25 → z, 26 → aa, as in sdaa."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text
