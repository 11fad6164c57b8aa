"""An export of a snapshot: each of its volumes becomes a claim of the export, made from the VolumeSnapshot. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from virt_controller.export import model
from virt_controller.export.model import Exported, Said, Source
from virt_controller.export.sources import Sight, is_disk, volumes_of
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.datavolume import KEY_CONTENT_TYPE
from virt_core.apis.export import VirtualMachineExport
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podparts import TypedLocalObjectReference
from virt_core.apis.podvolumes import PersistentVolumeClaimSpec
from virt_core.apis.registry import owner_reference
from virt_core.apis.snapshot import VirtualMachineSnapshot, VirtualMachineSnapshotContent, VolumeBackup
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine

_GROUP = "snapshot.storage.k8s.io"


def snapshot_source(
    export: VirtualMachineExport,
    snapshot: VirtualMachineSnapshot | None,
    content: VirtualMachineSnapshotContent | None,
    sight: Sight,
) -> Source:
    name = export.spec.source.name
    if snapshot is None:
        return _waits(model.SNAPSHOT_MISSING, f"there is no VirtualMachineSnapshot {name}", model.VOLUMES_UNMADE)
    if not snapshot.status.ready_to_use or content is None:
        return _waits(model.SNAPSHOT_PENDING, f"VirtualMachineSnapshot {name} is not ready", model.VOLUMES_UNMADE)
    backups = [each for each in content.spec.volume_backups if each.volume_snapshot_name]
    vm = _vm(content.spec.source.virtual_machine)
    vm_name = snapshot.spec.source.name
    if not backups:
        words = f"VirtualMachineSnapshot {name} has no volumes"
        return Source(reason=model.SNAPSHOT_EMPTY, message=words, empty=True, vm=vm, vm_name=vm_name)
    return _made(export, backups, vm, vm_name, sight)


def _made(
    export: VirtualMachineExport, backups: list[VolumeBackup], vm: VirtualMachine | None, vm_name: str, sight: Sight
) -> Source:
    disks = volumes_of(vm) if vm is not None else {}
    volumes, missing = [], []
    for backup in backups:
        wanted, original = _restored(export, backup)
        claim = sight.claim(f"{export.metadata.namespace}/{wanted.metadata.name}")
        if claim is None:
            missing.append(wanted)
        elif not any(ref.uid == export.metadata.uid for ref in claim.metadata.owner_references):
            return _waits(
                model.NAME_TAKEN, f"PersistentVolumeClaim {claim.metadata.name} is another's", model.VOLUMES_UNMADE
            )
        else:
            volumes.append(Exported(original, claim, disks.get(original, is_disk(claim, sight))))
    if missing:
        found = _waits(model.INITIALIZING, "claims are made from the snapshot", model.VOLUMES_UNMADE)
        return replace(found, wanted=tuple(missing), vm=vm, vm_name=vm_name)
    # One that binds to its first user is bound by the exporter.
    condition = (model.CONDITION_VOLUMES, Said(names.TRUE, model.VOLUMES_READY))
    if any(each.claim.status.phase == "Lost" for each in volumes):
        return _waits(model.CLAIM_PENDING, "a claim of the export has lost its volume", model.VOLUMES_UNREADY)
    return Source(tuple(volumes), condition=condition, vm=vm, vm_name=vm_name)


def _waits(reason: str, message: str, why: str) -> Source:
    return Source(reason=reason, message=message, condition=(model.CONDITION_VOLUMES, Said(names.FALSE, why, message)))


def _vm(document: dict[str, Any] | None) -> VirtualMachine | None:
    """As it was when the snapshot was taken, not as it is now."""
    if not document:
        return None
    try:
        return from_plain(document, VirtualMachine)
    except msgspec.MsgspecError:
        return None


def _restored(export: VirtualMachineExport, backup: VolumeBackup) -> tuple[PersistentVolumeClaim, str]:
    """The claim that is made, and the name of the one that was saved."""
    saved = from_plain(backup.persistent_volume_claim, PersistentVolumeClaim)
    original = saved.metadata.name
    kept = {key: value for key, value in saved.metadata.annotations.items() if key == KEY_CONTENT_TYPE}
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=f"{export.metadata.name}-{original}",
            namespace=export.metadata.namespace,
            annotations=kept,
            owner_references=[owner_reference(export)],
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=saved.spec.access_modes,
            resources=saved.spec.resources,
            storage_class_name=saved.spec.storage_class_name,
            volume_mode=saved.spec.volume_mode,
            data_source=TypedLocalObjectReference(
                kind="VolumeSnapshot", name=backup.volume_snapshot_name or "", api_group=_GROUP
            ),
        ),
    )
    return claim, original
