"""Which disks of a machine go with it when it moves, and what the other node must know to be ready for them. Pure.

Claims are shared, so the other node has them; one that is exchanged for another is copied there. What is made in the
Pod itself is copied byte for byte. The image below a container disk is not copied, so the other node must have the very
same one. Images that are made from the VMI and its Secrets are copied where the guest could write to them; a CD-ROM is
made anew, from the same bytes.
"""

from __future__ import annotations

from virt_core.apis.devices import Disk
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VolumeStatus
from virt_core.apis.volumemoves import moving
from virt_core.apis.volumes import Volume

_GENERATED = (
    "cloud_init_no_cloud",
    "cloud_init_config_drive",
    "config_map",
    "secret",
    "downward_api",
    "service_account",
    "sysprep",
)


def is_generated(volume: Volume) -> bool:
    return any(getattr(volume, name) is not None for name in _GENERATED)


def is_copied(volume: Volume, disk: Disk) -> bool:
    """Nothing was ever written to what the guest can only read."""
    if disk.cdrom is not None or (disk.disk is not None and disk.disk.read_only):
        return False
    made_here = volume.container_disk is not None or volume.empty_disk is not None or volume.ephemeral is not None
    return made_here or is_generated(volume)


def copied(vmi: VirtualMachineInstance) -> list[Volume]:
    moved = moving(vmi.status)
    return [volume for volume, disk in _disks(vmi) if volume.name in moved or is_copied(volume, disk)]


def moved(vmi: VirtualMachineInstance) -> list[Volume]:
    """Those that go to other claims."""
    names = moving(vmi.status)
    return [volume for volume, _ in _disks(vmi) if volume.name in names]


def to_compare(vmi: VirtualMachineInstance) -> list[Volume]:
    """Container disks by a name that may mean another image elsewhere."""
    return [volume for volume, _ in _disks(vmi) if volume.container_disk and "@" not in volume.container_disk.image]


def to_measure(vmi: VirtualMachineInstance) -> list[Volume]:
    """What is copied onto a file of the same size."""
    return generated(vmi) + moved(vmi)


def generated(vmi: VirtualMachineInstance) -> list[Volume]:
    """Images that are copied."""
    return [volume for volume in copied(vmi) if is_generated(volume)]


def untold(vmi: VirtualMachineInstance) -> bool:
    """Whether the VMI's status does not yet say all that the other node must know."""
    known = {status.name: status for status in vmi.status.volume_status}
    compared = all(checksum_of(known.get(volume.name)) for volume in to_compare(vmi))
    return not compared or not all(size_of(known.get(volume.name)) for volume in to_measure(vmi))


def checksum_of(status: VolumeStatus | None) -> int:
    """0: it is not known."""
    return status.container_disk_volume.checksum if status is not None and status.container_disk_volume else 0


def size_of(status: VolumeStatus | None) -> int:
    return status.size if status is not None else 0


def _disks(vmi: VirtualMachineInstance) -> list[tuple[Volume, Disk]]:
    disks = {disk.name: disk for disk in vmi.spec.domain.devices.disks}
    return [(volume, disks[volume.name]) for volume in vmi.spec.volumes if volume.name in disks]
