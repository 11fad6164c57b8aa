"""Volumes of a running machine that move to other claims (decisions/0056). Pure.

From the moment in which that is asked for, the VMI's spec names the claims that the volumes shall have. What they have
until the machine has arrived with them says the status: `volumeStatus`, and the source in `migratedVolumes`.
"""

from __future__ import annotations

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import PersistentVolumeClaimInfo, StorageMigratedVolumeInfo, VirtualMachineInstanceStatus

MIGRATION = "Migration"
REPLACEMENT = "Replacement"


def moving(status: VirtualMachineInstanceStatus) -> dict[str, StorageMigratedVolumeInfo]:
    """By the volumes' names."""
    return {each.volume_name: each for each in status.migrated_volumes}


def source_claims(vmi: VirtualMachineInstance) -> list[str]:
    """The claims that the machine still has, and its spec names no more."""
    found = (each.source_pvc_info for each in vmi.status.migrated_volumes)
    return [each.claim_name for each in found if each is not None and each.claim_name]


def goes_to_block(info: StorageMigratedVolumeInfo) -> bool:
    there = info.destination_pvc_info or PersistentVolumeClaimInfo()
    return there.volume_mode == names.VOLUME_MODE_BLOCK


def at_target(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    """As the side sees it that the machine moves to: with the claims that its Pod has."""
    if not vmi.status.migrated_volumes:
        return vmi
    return replace(vmi, status=_with_destinations(vmi.status))


def arrived(status: VirtualMachineInstanceStatus) -> VirtualMachineInstanceStatus:
    """Every block is on the other claims: nothing speaks of the former ones any more."""
    if not status.migrated_volumes:
        return status
    names_ = moving(status)
    told = _with_destinations(status).volume_status
    sizeless = [replace(each, size=0) if each.name in names_ else each for each in told]
    return replace(status, volume_status=sizeless, migrated_volumes=[])


def unmeasured(status: VirtualMachineInstanceStatus) -> VirtualMachineInstanceStatus:
    """Their disks are measured anew for each try: they may have grown since the last one."""
    names_ = moving(status)
    if not names_:
        return status
    told = [replace(each, size=0) if each.name in names_ else each for each in status.volume_status]
    return replace(status, volume_status=told)


def _with_destinations(status: VirtualMachineInstanceStatus) -> VirtualMachineInstanceStatus:
    found = moving(status)
    told = [
        replace(each, persistent_volume_claim_info=found[each.name].destination_pvc_info)
        if each.name in found
        else each
        for each in status.volume_status
    ]
    return replace(status, volume_status=told)
