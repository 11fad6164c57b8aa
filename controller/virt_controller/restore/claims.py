"""The claims of a restore: which, under which names, from what, and whose they are. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from virt_controller.snapshot.classes import volumes_of
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.base import from_plain
from virt_core.apis.datavolume import KEY_CONTENT_TYPE, KEY_POPULATED_FOR, DataVolume
from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.podparts import TypedLocalObjectReference, TypedObjectReference
from virt_core.apis.podvolumes import PersistentVolumeClaimSpec, VolumeResourceRequirements
from virt_core.apis.quantity import Quantity, parse_bytes
from virt_core.apis.registry import owner_reference
from virt_core.apis.snapshot import VirtualMachineRestore, VirtualMachineSnapshotContent, VolumeBackup, VolumeRestore
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.volumesnapshots import SNAPSHOT_GROUP, VolumeSnapshot

_STORAGE = "storage"
#: What a restored claim may belong to.
_OWNERS = ("VirtualMachine", "DataVolume")
#: Annotations that tell of the old claim's own life.
_NOT_COPIED = ("pv.kubernetes.io", "volume.beta.kubernetes.io", "volume.kubernetes.io", "cdi.kubevirt.io",
               "k8s.io/CloneRequest", "k8s.io/CloneOf", words.ANNOTATION_OWNED_BY_VM)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """A volume of a snapshot, with the claim as it was."""

    backup: VolumeBackup
    claim: PersistentVolumeClaim


def kept(content: VirtualMachineSnapshotContent, vm: VirtualMachine, target: str) -> list[Kept]:
    """The volumes to be restored. Dumps of memory are not; what firmware and TPM stored, and a machine's state, only to
    the same VM."""
    dumps = {volume.name for volume in volumes_of(vm) if volume.memory_dump is not None}
    state = words.state_volume(vm.metadata.name)
    found = []
    for backup in content.spec.volume_backups:
        if backup.volume_name in dumps or not backup.volume_snapshot_name:
            continue
        if backup.volume_name in (state, names.VOLUME_MACHINE_STATE) and target != vm.metadata.name:
            continue
        found.append(Kept(backup, from_plain(backup.persistent_volume_claim, PersistentVolumeClaim)))
    return found


def new_name(restore: VirtualMachineRestore, each: Kept) -> str:
    volume = each.backup.volume_name
    for override in restore.spec.volume_restore_overrides:
        if override.volume_name == volume and override.restore_name:
            return override.restore_name
    if restore.spec.volume_restore_policy == words.IN_PLACE:
        return each.claim.metadata.name
    if restore.spec.volume_restore_policy == words.PREFIX_TARGET_NAME:
        return words.short_name(restore.spec.target.name, volume)
    return f"restore-{restore.metadata.uid}-{volume}"


def planned(
    restore: VirtualMachineRestore, found: Iterable[Kept], vm: VirtualMachine, there: Collection[str] = ()
) -> list[VolumeRestore]:
    """What the restore's status says. A volume of a template gets a new DataVolume, which has the name of its claim; in
    place those stay that are `there`."""
    templates = {t.metadata.name for t in vm.spec.data_volume_templates if t.metadata is not None}
    if restore.spec.volume_restore_policy == words.IN_PLACE:
        templates |= set(there)
    made = {v.name for v in volumes_of(vm) if v.data_volume is not None and v.data_volume.name in templates}
    return [
        VolumeRestore(
            volume_name=each.backup.volume_name,
            persistent_volume_claim=(name := new_name(restore, each)),
            volume_snapshot_name=each.backup.volume_snapshot_name or "",
            data_volume_name=name if each.backup.volume_name in made else None,
        )
        for each in found
    ]


def is_ours(restore: VirtualMachineRestore, claim: PersistentVolumeClaim) -> bool:
    return claim.metadata.annotations.get(words.ANNOTATION_LAST_RESTORE) == words.mark_of(restore)


def is_taken(claim: PersistentVolumeClaim) -> bool:
    """Somebody has made it his own since: we give claims to VMs and DataVolumes only."""
    return any(each.kind not in _OWNERS for each in claim.metadata.owner_references)


def may_replace(
    restore: VirtualMachineRestore, claim: PersistentVolumeClaim, each: Kept, source: VirtualMachine
) -> bool:
    """Only the very claim that was saved, only where that was asked for, and never for another VM: it may be in use."""
    in_place = restore.spec.volume_restore_policy == words.IN_PLACE
    same = restore.spec.target.name == source.metadata.name
    return in_place and same and claim.metadata.name == each.claim.metadata.name


def data_volume_of(claim: PersistentVolumeClaim) -> str:
    return next((ref.name for ref in claim.metadata.owner_references if ref.kind == "DataVolume"), "")


@dataclass(frozen=True, slots=True)
class Around:
    """Who may own a claim."""

    source: VirtualMachine
    target: VirtualMachine | None
    #: The DataVolume that stays, and whose claim is made anew in its place.
    data_volume: DataVolume | None = None


def claim_for(
    restore: VirtualMachineRestore, each: Kept, planned: VolumeRestore, saved: VolumeSnapshot, around: Around
) -> PersistentVolumeClaim:
    old = each.claim
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=planned.persistent_volume_claim,
            namespace=restore.metadata.namespace,
            labels=_labels(restore, each, around.source),
            annotations=_annotations(restore, each, planned, around),
            owner_references=_owners(restore, planned, around),
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=old.spec.access_modes,
            resources=_resources(old, saved),
            storage_class_name=old.spec.storage_class_name,
            volume_mode=old.spec.volume_mode,
            data_source=TypedLocalObjectReference(
                api_group=SNAPSHOT_GROUP, kind="VolumeSnapshot", name=saved.metadata.name
            ),
            data_source_ref=TypedObjectReference(
                api_group=SNAPSHOT_GROUP, kind="VolumeSnapshot", name=saved.metadata.name
            ),
        ),
    )


def _resources(old: PersistentVolumeClaim, saved: VolumeSnapshot) -> VolumeResourceRequirements:
    """Never smaller than what is in it."""
    given = old.spec.resources or VolumeResourceRequirements()
    asked: Quantity | None = given.requests.get(_STORAGE)
    least = saved.status.restore_size
    if least is not None and (asked is None or parse_bytes(asked) < parse_bytes(least)):
        return replace(given, requests=given.requests | {_STORAGE: least})
    return given


def _labels(restore: VirtualMachineRestore, each: Kept, source: VirtualMachine) -> dict[str, str]:
    labels = {key: value for key, value in each.claim.metadata.labels.items() if key != names.LABEL_KEPT_STATE}
    labels |= {
        words.LABEL_RESTORED_NAME: names.vmi_id(source.metadata.name),
        words.LABEL_RESTORED_NAMESPACE: restore.metadata.namespace,
    }
    for override in restore.spec.volume_restore_overrides:
        if override.volume_name == each.backup.volume_name:
            labels |= override.labels
    return labels


def _annotations(restore: VirtualMachineRestore, each: Kept, planned: VolumeRestore, around: Around) -> dict[str, str]:
    old = each.claim.metadata.annotations
    found = {key: value for key, value in old.items() if key == KEY_CONTENT_TYPE or not key.startswith(_NOT_COPIED)}
    for override in restore.spec.volume_restore_overrides:
        if override.volume_name == each.backup.volume_name:
            found |= override.annotations
    found |= marks(restore)
    if volume := planned.data_volume_name:
        found[KEY_POPULATED_FOR] = volume
    elif around.data_volume is not None:
        found[KEY_POPULATED_FOR] = around.data_volume.metadata.name
    elif _goes_to_new_vm(restore, each, around):
        found[words.ANNOTATION_OWNED_BY_VM] = restore.metadata.name
    return found


def marks(restore: VirtualMachineRestore) -> dict[str, str]:
    return {
        words.ANNOTATION_RESTORE_NAME: restore.metadata.name,
        words.ANNOTATION_LAST_RESTORE: words.mark_of(restore),
    }


def _goes_to_new_vm(restore: VirtualMachineRestore, each: Kept, around: Around) -> bool:
    owners = {ref.uid for ref in each.claim.metadata.owner_references}
    kept = restore.spec.volume_ownership_policy == words.OWNED_BY_NOBODY
    return not kept and around.target is None and around.source.metadata.uid in owners


def _owners(restore: VirtualMachineRestore, planned: VolumeRestore, around: Around) -> list[OwnerReference]:
    """One that a DataVolume is made for is taken by that."""
    if around.data_volume is not None:
        return [owner_reference(around.data_volume)]
    if planned.data_volume_name or restore.spec.volume_ownership_policy == words.OWNED_BY_NOBODY:
        return []
    return [owner_reference(around.target)] if around.target is not None else []


def relabelled(claim: PersistentVolumeClaim, target: str) -> PersistentVolumeClaim:
    """The claim that kept a machine's state until now: it goes at the end."""
    meta = claim.metadata
    labels = {key: value for key, value in meta.labels.items() if key != names.LABEL_KEPT_STATE}
    notes = meta.annotations | {words.ANNOTATION_CLEANUP_STATE: words.state_volume(target)}
    return replace(claim, metadata=replace(meta, labels=labels, annotations=notes))


def labelled(claim: PersistentVolumeClaim, target: str) -> PersistentVolumeClaim:
    """The claim that keeps a machine's state from now on."""
    labels = claim.metadata.labels | {names.LABEL_KEPT_STATE: names.vmi_id(target)}
    return replace(claim, metadata=replace(claim.metadata, labels=labels))
