"""Makes the claims and DataVolumes of a restore, and clears away what they replace."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from virt_controller.restore import claims as plan
from virt_controller.restore.claims import Around, Kept
from virt_controller.restore.decide import CREATING_CLAIMS, WAITING_FOR_CLAIMS, WAITING_FOR_TARGET, Trouble, Waiting
from virt_controller.vm.volumes import make_data_volume
from virt_controller.vmi.keptstate import STATE_INDEX, chosen_for
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.datavolume import DONE, FAILED, KEY_PREPOPULATED, WAITING, DataVolume
from virt_core.apis.facts import is_terminating
from virt_core.apis.registry import owner_reference
from virt_core.apis.snapshot import VirtualMachineRestore, VolumeRestore
from virt_core.apis.storage import PersistentVolumeClaim, StorageClass
from virt_core.apis.vm import DataVolumeTemplateSpec, VirtualMachine
from virt_core.apis.volumesnapshots import VolumeSnapshot
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import AlreadyExists, ApiError, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import op, pointer
from virt_core.kube.writes import write_difference, write_operations


class Volumes:
    def __init__(
        self,
        client: KubeClient,
        claims: Informer[PersistentVolumeClaim],
        data_volumes: Informer[DataVolume],
        saved: Informer[VolumeSnapshot],
        classes: Informer[StorageClass],
    ) -> None:
        self._client = client
        self._claims, self._data_volumes, self._saved, self._classes = claims, data_volumes, saved, classes

    def there(self, namespace: str, found: Sequence[Kept]) -> set[str]:
        """The DataVolumes of the claims that were saved, as far as there are any."""
        wanted = {plan.data_volume_of(each.claim) for each in found}
        return {name for name in wanted if self._data_volumes.get(f"{namespace}/{name}") is not None}

    def make(
        self,
        restore: VirtualMachineRestore,
        found: Sequence[Kept],
        source: VirtualMachine,
        target: VirtualMachine | None,
    ) -> None:
        """Raises Waiting while a claim is missing, Trouble, ApiError."""
        by_volume = {each.volume_name: each for each in restore.status.restores}
        missing = False
        for each in found:
            planned = by_volume.get(each.backup.volume_name)
            if planned is not None and not self._made(restore, each, planned, source, target):
                missing = True
        if missing:
            raise Waiting(CREATING_CLAIMS)
        pending = [planned.persistent_volume_claim for planned in by_volume.values() if self._pends(restore, planned)]
        if pending:
            raise Waiting(WAITING_FOR_CLAIMS)

    def _made(
        self,
        restore: VirtualMachineRestore,
        each: Kept,
        planned: VolumeRestore,
        source: VirtualMachine,
        target: VirtualMachine | None,
    ) -> bool:
        space, name = restore.metadata.namespace, planned.persistent_volume_claim
        there = self._claims.get(f"{space}/{name}")
        if there is not None and plan.is_ours(restore, there):
            return True
        saved = self._source(space, planned)
        if there is not None:
            self._make_room(restore, each, source, there)
            return False
        kept = self._data_volumes.get(f"{space}/{planned.data_volume_name}") if planned.data_volume_name else None
        wanted = plan.claim_for(restore, each, planned, saved, Around(source, target, kept))
        try:
            self._client.create(wanted)
        except AlreadyExists:
            return False
        return False

    def _source(self, space: str, planned: VolumeRestore) -> VolumeSnapshot:
        """Looked at before anything is taken away for it."""
        saved = self._saved.get(f"{space}/{planned.volume_snapshot_name}")
        if saved is None or is_terminating(saved) or not saved.status.ready_to_use:
            raise Trouble(f"VolumeSnapshot {planned.volume_snapshot_name} is not there or not ready")
        return saved

    def _make_room(
        self, restore: VirtualMachineRestore, each: Kept, source: VirtualMachine, there: PersistentVolumeClaim
    ) -> None:
        meta = there.metadata
        if not plan.may_replace(restore, there, each, source):
            raise Trouble(f"there is a claim {meta.name} already, and it is not this restore's")
        if is_terminating(there):
            return
        if name := plan.data_volume_of(there):
            self._mark(restore, f"{meta.namespace}/{name}")
        try:
            self._client.delete(PersistentVolumeClaim, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    def _mark(self, restore: VirtualMachineRestore, key: str) -> None:
        """So that its importer does not fill what is restored."""
        volume = self._data_volumes.get(key)
        if volume is None:
            return
        own = {words.ANNOTATION_RESTORE_NAME: restore.metadata.name, KEY_PREPOPULATED: volume.metadata.name}
        meta = replace(volume.metadata, annotations=volume.metadata.annotations | own)
        write_difference(self._client, volume, replace(volume, metadata=meta))

    def _pends(self, restore: VirtualMachineRestore, planned: VolumeRestore) -> bool:
        claim = self._claims.get(f"{restore.metadata.namespace}/{planned.persistent_volume_claim}")
        if claim is None or claim.status.phase == "Bound":
            return claim is None
        if claim.status.phase == "Lost":
            raise Trouble(f"claim {claim.metadata.name} has lost its volume")
        chosen = self._classes.get(claim.spec.storage_class_name or "")
        return chosen is None or chosen.volume_binding_mode != names.BINDING_FIRST_CONSUMER

    def drop(self, restore: VirtualMachineRestore) -> None:
        """The claims of a restore that was given up before any VM was on them. What is in place stays: there is no
        other."""
        if restore.spec.volume_restore_policy == words.IN_PLACE:
            return
        for planned in restore.status.restores:
            claim = self._surely(restore.metadata.namespace, planned.persistent_volume_claim)
            if claim is None or is_terminating(claim) or not plan.is_ours(restore, claim) or plan.is_taken(claim):
                continue
            try:
                meta = claim.metadata
                self._client.delete(PersistentVolumeClaim, meta.name, meta.namespace, uid=meta.uid)
            except NotFound:
                continue

    def _surely(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """What the live copy does not show may have been made by us a moment ago."""
        try:
            return self._claims.get(f"{namespace}/{name}") or self._client.get(PersistentVolumeClaim, name, namespace)
        except NotFound:
            return None

    # What firmware and TPM store

    def change_state(self, restore: VirtualMachineRestore, vm: VirtualMachine) -> None:
        """The restored claim takes the place of the one that keeps it now."""
        name, space = vm.metadata.name, vm.metadata.namespace
        wanted = next((r for r in restore.status.restores if r.volume_name == words.state_volume(name)), None)
        new = self._claims.get(f"{space}/{wanted.persistent_volume_claim}") if wanted is not None else None
        if new is None:
            return
        known = self._claims.by_index(STATE_INDEX, f"{space}/{names.vmi_id(name)}")
        old = chosen_for([each for each in known if each.metadata.uid != new.metadata.uid], vm.metadata.uid)
        if old is not None:
            write_difference(self._client, old, plan.relabelled(old, name))
        if names.LABEL_KEPT_STATE not in new.metadata.labels:
            write_difference(self._client, new, plan.labelled(new, name))

    # After the VM is as it shall be

    def finish(self, restore: VirtualMachineRestore, vm: VirtualMachine) -> None:
        """Raises Waiting, Trouble, ApiError."""
        self._make_data_volumes(restore, vm)
        self._give_to_vm(restore, vm)
        for name in restore.status.deleted_data_volumes:
            self._drop_data_volume(vm, name)
        self._drop_state(vm)

    def _make_data_volumes(self, restore: VirtualMachineRestore, vm: VirtualMachine) -> None:
        templates = {t.metadata.name: t for t in vm.spec.data_volume_templates if t.metadata is not None}
        names_ = [each.data_volume_name for each in restore.status.restores if each.data_volume_name in templates]
        waits = False
        for name in names_:
            there = self._data_volumes.get(f"{vm.metadata.namespace}/{name}")
            if there is None:
                self._create_data_volume(restore, vm, templates[str(name)])
                waits = True
            elif there.status.phase == FAILED:
                raise Trouble(f"DataVolume {name} has failed")
            elif there.status.phase not in {DONE, *WAITING}:
                waits = True
        if waits:
            raise Waiting(WAITING_FOR_TARGET)

    def _create_data_volume(
        self, restore: VirtualMachineRestore, vm: VirtualMachine, template: DataVolumeTemplateSpec
    ) -> None:
        made = make_data_volume(vm, template)
        own = {words.ANNOTATION_RESTORE_NAME: restore.metadata.name, KEY_PREPOPULATED: made.metadata.name}
        made = replace(made, metadata=replace(made.metadata, annotations=made.metadata.annotations | own))
        try:
            self._client.create(made)
        except AlreadyExists:
            return
        except ApiError as error:
            text = f"DataVolume {made.metadata.name} cannot be made: {error}"
            raise Trouble(text, event="RestoreDataVolumeCreateError") from error

    def _give_to_vm(self, restore: VirtualMachineRestore, vm: VirtualMachine) -> None:
        """Claims that were made before their VM."""
        for each in restore.status.restores:
            claim = self._claims.get(f"{vm.metadata.namespace}/{each.persistent_volume_claim}")
            if claim is None or claim.metadata.annotations.get(words.ANNOTATION_OWNED_BY_VM) != restore.metadata.name:
                continue
            owners = [*claim.metadata.owner_references, owner_reference(vm)]
            path = pointer("metadata", "annotations", words.ANNOTATION_OWNED_BY_VM)
            operations = [op.add(pointer("metadata", "ownerReferences"), owners), op.remove(path)]
            write_operations(self._client, claim, operations)

    def _drop_data_volume(self, vm: VirtualMachine, name: str) -> None:
        """One that was made for the VM, and no other."""
        there = self._data_volumes.get(f"{vm.metadata.namespace}/{name}")
        if there is None or not any(ref.uid == vm.metadata.uid for ref in there.metadata.owner_references):
            return
        try:
            self._client.delete(DataVolume, name, vm.metadata.namespace, uid=there.metadata.uid)
        except NotFound:
            return

    def _drop_state(self, vm: VirtualMachine) -> None:
        mark = words.state_volume(vm.metadata.name)
        for claim in self._claims.list():
            meta = claim.metadata
            ours = meta.namespace == vm.metadata.namespace and any(
                r.uid == vm.metadata.uid for r in meta.owner_references
            )
            if not ours or meta.annotations.get(words.ANNOTATION_CLEANUP_STATE) != mark or is_terminating(claim):
                continue
            try:
                self._client.delete(PersistentVolumeClaim, meta.name, meta.namespace, uid=meta.uid)
            except NotFound:
                continue
