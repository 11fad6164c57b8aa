"""Which machines keep what their firmware and their TPM store, and which blocks have changed, beyond a stop. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virt_core.apis.devices import Disk
    from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
    from virt_core.apis.volumes import Volume

#: The states of status.changedBlockTracking
TRACKING_PENDING, TRACKING_BEGINS, TRACKING_ON, TRACKING_OFF, TRACKING_GATED = (
    "PendingRestart",
    "Initializing",
    "Enabled",
    "Disabled",
    "IncrementalBackupFeatureGateDisabled",
)


def keeps_variables(spec: VirtualMachineInstanceSpec) -> bool:
    """The variables of UEFI."""
    firmware = spec.domain.firmware
    efi = firmware.bootloader.efi if firmware is not None and firmware.bootloader is not None else None
    return efi is not None and bool(efi.persistent)


def keeps_tpm(spec: VirtualMachineInstanceSpec) -> bool:
    tpm = spec.domain.devices.tpm
    return tpm is not None and tpm.enabled is not False and bool(tpm.persistent)


def keeps_state(spec: VirtualMachineInstanceSpec) -> bool:
    """Whether firmware or TPM need a claim."""
    return keeps_variables(spec) or keeps_tpm(spec)


def tracks_blocks(vmi: VirtualMachineInstance) -> bool:
    """Whether the machine was made to track which blocks of its disks change."""
    told = vmi.status.changed_block_tracking
    return told is not None and told.state in (TRACKING_BEGINS, TRACKING_ON)


def keeps_anything(vmi: VirtualMachineInstance) -> bool:
    """Whether there must be a claim for it."""
    return keeps_state(vmi.spec) or tracks_blocks(vmi)


def tracked_volumes(spec: VirtualMachineInstanceSpec) -> Iterator[Volume]:
    """Those of which it is known which blocks change: what the guest can write and what lasts."""
    disks = {disk.name: disk for disk in spec.domain.devices.disks}
    for volume in spec.volumes:
        if (disk := disks.get(volume.name)) is not None and _is_trackable(volume, disk):
            yield volume


def _is_trackable(volume: Volume, disk: Disk) -> bool:
    lasts = volume.persistent_volume_claim or volume.data_volume or volume.host_disk
    read_only = volume.persistent_volume_claim is not None and volume.persistent_volume_claim.read_only
    written = disk.cdrom is None and disk.lun is None and not (disk.disk is not None and disk.disk.read_only)
    return lasts is not None and written and not read_only and not disk.shareable
