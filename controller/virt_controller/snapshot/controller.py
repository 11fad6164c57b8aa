"""The controller of snapshots: looks at one, its VM and its content, lets `decide` decide, and does it."""

from __future__ import annotations

import contextlib

import msgspec
from msgspec.structs import replace

from virt_controller.snapshot import memory, source
from virt_controller.snapshot.decide import Decision, World, decide
from virt_controller.snapshot.revisions import Revisions
from virt_controller.snapshot.storage import SnapshotStorage
from virt_controller.vm.hibernation import with_state_volume, without_state_volume
from virt_controller.vm.setup import spec_of
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.apps import ControllerRevision
from virt_core.apis.datavolume import DONE, DataVolume
from virt_core.apis.facts import is_terminating
from virt_core.apis.pods import Pod
from virt_core.apis.registry import owner_reference
from virt_core.apis.snapshot import VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumesnapshots import VolumeSnapshotClass
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Result
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_difference, write_operations, write_status
from virt_core.runtime.clock import Clock

#: Snapshots by the key of their VM.
SOURCE_INDEX = "source"
_CONTENT_CREATED = "SuccessfulVirtualMachineSnapshotContentCreate"


def source_indexer(snapshot: VirtualMachineSnapshot) -> list[str]:
    return [f"{snapshot.metadata.namespace}/{snapshot.spec.source.name}"]


class SnapshotController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        snapshots: Informer[VirtualMachineSnapshot],
        contents: Informer[VirtualMachineSnapshotContent],
        vms: Informer[VirtualMachine],
        vmis: Informer[VirtualMachineInstance],
        claims: Informer[PersistentVolumeClaim],
        data_volumes: Informer[DataVolume],
        revisions: Informer[ControllerRevision],
        storage: SnapshotStorage,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._snapshots, self._contents, self._vms, self._vmis = snapshots, contents, vms, vmis
        self._claims, self._data_volumes, self._revisions, self._storage = claims, data_volumes, revisions, storage
        self._copies = Revisions(client)
        self._writes: OwnWrites[VirtualMachineSnapshot] = OwnWrites()
        snapshots.add_handler(self._wake, lambda _old, new: self._wake(new), self._gone)
        contents.add_handler(self._content, lambda _old, new: self._content(new), self._content)
        vms.add_handler(self._vm, lambda _old, new: self._vm(new), self._vm)
        vmis.add_handler(lambda _new: None, lambda _old, new: self._vmi(new), lambda _old: None)

    def reconcile(self, key: str) -> Result | None:
        cached = self._snapshots.get(key)
        if cached is None:
            return None
        snapshot = self._writes.freshest(cached)
        world = self._look(snapshot)
        decision = decide(snapshot, world, self._clock.now())
        self._act(snapshot, world, decision)
        return Result(decision.recheck_s) if decision.recheck_s is not None else None

    # What it looks at

    def _look(self, snapshot: VirtualMachineSnapshot) -> World:
        space = snapshot.metadata.namespace
        vm = self._vms.get(f"{space}/{snapshot.spec.source.name}")
        content = self._contents.get(f"{space}/{words.content_name(snapshot)}")
        world = World(vm=vm, vmi=self._vmis.get(key_of(vm)) if vm is not None else None, content=content)
        if content is not None:
            went_on = memory.is_wanted(snapshot) and memory.went_on(world.vmi, self._clock.now())
            return World(vm=vm, vmi=world.vmi, content=content, hopeless=_unreadable(content), went_on=went_on)
        if vm is None or snapshot.status.phase in (words.SUCCEEDED, words.FAILED) or is_terminating(snapshot):
            return world
        disks = self._disks(vm)
        blocked = "" if source.holds(vm, snapshot) else self._blocked(vm, world.vmi, disks)
        hopeless, missing = self._hopeless(disks), False
        if memory.is_wanted(snapshot):
            hopeless = hopeless or memory.hopeless(world.vmi, disks)
            missing = not memory.is_saved(world.vmi)
        return World(vm=vm, vmi=world.vmi, blocked=blocked, hopeless=hopeless, memory_missing=missing)

    def _blocked(self, vm: VirtualMachine, vmi: source.Vmi, disks: list[source.Disk]) -> str:
        """Pods are asked for last: anybody may make many snapshots that wait."""
        return source.blocked(vm, vmi, disks, ()) or source.blocked(vm, vmi, disks, self._users(vm, disks))

    def _disks(self, vm: VirtualMachine) -> list[source.Disk]:
        space = vm.metadata.namespace
        found = [self._disk(space, volume, claim) for volume, claim in source.named(vm)]
        state = self._storage.state_claim(vm)
        return (
            [*found, self._disk(space, words.state_volume(vm.metadata.name), state.metadata.name)] if state else found
        )

    def _disk(self, space: str, volume: str, name: str) -> source.Disk:
        claim = self._claims.get(f"{space}/{name}")
        choice = self._storage.choose((claim.spec.storage_class_name or "") if claim is not None else "")
        return source.Disk(volume, name, claim, self._fills(claim), choice)

    def _fills(self, claim: PersistentVolumeClaim | None) -> bool:
        """Its DataVolume is not through with it, or is gone though the claim is its."""
        owner = (
            next((ref for ref in claim.metadata.owner_references if ref.kind == "DataVolume"), None) if claim else None
        )
        if claim is None or owner is None:
            return False
        volume = self._data_volumes.get(f"{claim.metadata.namespace}/{owner.name}")
        return volume is None or volume.status.phase != DONE

    def _users(self, vm: VirtualMachine, disks: list[source.Disk]) -> list[str]:
        """Pods that use the claims of a VM that does not run."""
        if not disks or source.is_online(self._vmis.get(key_of(vm))):
            return []
        wanted = {disk.claim_name for disk in disks}
        pods = self._client.list(Pod, vm.metadata.namespace, skip_invalid=True).items
        return sorted(pod.metadata.name for pod in pods if pod.status.phase != "Succeeded" and wanted & _claims_of(pod))

    def _hopeless(self, disks: list[source.Disk]) -> str:
        """A snapshot that holds nothing of what lasts, and never could, is no success."""
        if not disks or self._storage.has_classes():
            return ""
        try:
            self._client.list(VolumeSnapshotClass, limit=1)
        except NotFound:
            lost = ", ".join(disk.volume for disk in disks)
            return f"the cluster has no VolumeSnapshots (snapshot.storage.k8s.io/v1), so these cannot be saved: {lost}"
        return ""

    # What it does

    def _act(self, snapshot: VirtualMachineSnapshot, world: World, decision: Decision) -> None:
        """What is held is held before anything is made of it, and let go after all is written down."""
        if not is_terminating(snapshot):
            snapshot = self._hold(snapshot)
        vm = self._lock(snapshot, world.vm) if decision.lock and world.vm is not None else world.vm
        if decision.save_memory and vm is not None and world.vmi is not None:
            self._save_memory(snapshot, vm, world.vmi)
        if decision.create_content and vm is not None:
            self._create(snapshot, vm, world.vmi)
        if decision.delete_content and world.content is not None:
            self._delete(world.content)
        snapshot = self._write(snapshot, decision)
        if memory.is_wanted(snapshot) and decision.status.ready_to_use:
            self._drop_memory(snapshot)
        if decision.unlock and vm is not None:
            self._let_go_on(snapshot, world.vmi)
            self._unlock(vm)
        if decision.release:
            self._release(snapshot)

    def _hold(self, snapshot: VirtualMachineSnapshot) -> VirtualMachineSnapshot:
        if words.FINALIZER_SNAPSHOT in snapshot.metadata.finalizers:
            return snapshot
        finalizers = [*snapshot.metadata.finalizers, words.FINALIZER_SNAPSHOT]
        meta = replace(snapshot.metadata, finalizers=finalizers)
        written = write_difference(self._client, snapshot, replace(snapshot, metadata=meta))
        assert written is not None
        self._writes.remember(written)
        return written

    def _release(self, snapshot: VirtualMachineSnapshot) -> None:
        kept = [each for each in snapshot.metadata.finalizers if each != words.FINALIZER_SNAPSHOT]
        meta = replace(snapshot.metadata, finalizers=kept)
        try:
            write_difference(self._client, snapshot, replace(snapshot, metadata=meta))
        except NotFound:
            return

    def _lock(self, snapshot: VirtualMachineSnapshot, vm: VirtualMachine) -> VirtualMachine:
        """The name first: from then on nobody else changes what is saved."""
        status = replace(vm.status, snapshot_in_progress=snapshot.metadata.name)
        vm = write_status(self._client, vm, replace(vm, status=status)) or vm
        if words.FINALIZER_SOURCE in vm.metadata.finalizers:
            return vm
        meta = replace(vm.metadata, finalizers=[*vm.metadata.finalizers, words.FINALIZER_SOURCE])
        return write_difference(self._client, vm, replace(vm, metadata=meta)) or vm

    def _unlock(self, vm: VirtualMachine) -> None:
        """The name last: as long as it is there, we come back."""
        kept = [each for each in vm.metadata.finalizers if each != words.FINALIZER_SOURCE]
        try:
            freed = write_difference(self._client, vm, replace(vm, metadata=replace(vm.metadata, finalizers=kept)))
            vm = freed or vm
            write_status(self._client, vm, replace(vm, status=replace(vm.status, snapshot_in_progress=None)))
        except NotFound:
            return

    def _create(self, snapshot: VirtualMachineSnapshot, vm: VirtualMachine, vmi: source.Vmi) -> None:
        spec = source.kept_spec(vm, vmi, self._started(vmi))
        spec = self._copies.keep(vm, spec, snapshot.metadata.name, owner_reference(snapshot))
        disks, state = self._disks(vm), ""
        if memory.is_wanted(snapshot) and vmi is not None:
            name = memory.claim_name(snapshot)
            disks = [*disks, self._disk(vm.metadata.namespace, names.VOLUME_MACHINE_STATE, name)]
            state = memory.state_of(snapshot, vmi)
        content = source.content_of(snapshot, vm, spec, disks, state)
        try:
            self._client.create(content)
        except AlreadyExists:
            return
        name = content.metadata.name
        text = f"made VirtualMachineSnapshotContent {name}"
        self._recorder.event(snapshot, names.EVENT_NORMAL, _CONTENT_CREATED, text)

    def _save_memory(self, snapshot: VirtualMachineSnapshot, vm: VirtualMachine, vmi: VirtualMachineInstance) -> None:
        """The claim first; virt-handler and the launcher do the rest."""
        with contextlib.suppress(AlreadyExists):
            self._client.create(memory.claim(snapshot, vm, vmi))
        asked = with_state_volume(vmi, memory.claim_name(snapshot), names.STATE_SNAPSHOT)
        write_operations(self._client, vmi, asked)

    def _drop_memory(self, snapshot: VirtualMachineSnapshot) -> None:
        """Its bytes are in the VolumeSnapshot."""
        found = self._claims.get(f"{snapshot.metadata.namespace}/{memory.claim_name(snapshot)}")
        if found is None or is_terminating(found):
            return
        if not any(ref.uid == snapshot.metadata.uid for ref in found.metadata.owner_references):
            return
        meta = found.metadata
        with contextlib.suppress(NotFound):
            self._client.delete(PersistentVolumeClaim, meta.name, meta.namespace, uid=meta.uid)

    def _let_go_on(self, snapshot: VirtualMachineSnapshot, vmi: source.Vmi) -> None:
        """The guest runs again."""
        if not memory.is_wanted(snapshot):
            return
        with contextlib.suppress(NotFound):
            if vmi is not None and vmi.metadata.annotations.get(names.ANNOTATION_SAVE_STATE) == names.STATE_SNAPSHOT:
                write_operations(self._client, vmi, without_state_volume(vmi))

    def _started(self, vmi: source.Vmi) -> VirtualMachineSpec | None:
        if vmi is None:
            return None
        found = self._revisions.get(f"{vmi.metadata.namespace}/{vmi.status.virtual_machine_revision_name}")
        return spec_of(found) if found is not None else None

    def _delete(self, content: VirtualMachineSnapshotContent) -> None:
        meta = content.metadata
        try:
            self._client.delete(VirtualMachineSnapshotContent, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    def _write(self, snapshot: VirtualMachineSnapshot, decision: Decision) -> VirtualMachineSnapshot:
        try:
            written = write_status(self._client, snapshot, replace(snapshot, status=decision.status))
        except NotFound:
            return snapshot
        if written is None:
            return snapshot
        self._writes.remember(written)
        return written

    # What wakes it

    def _wake(self, snapshot: VirtualMachineSnapshot) -> None:
        self._queue.add(key_of(snapshot))

    def _gone(self, snapshot: VirtualMachineSnapshot) -> None:
        self._writes.forget(snapshot.metadata.uid)

    def _content(self, content: VirtualMachineSnapshotContent) -> None:
        if content.spec.virtual_machine_snapshot_name:
            self._queue.add(f"{content.metadata.namespace}/{content.spec.virtual_machine_snapshot_name}")

    def _vmi(self, vmi: VirtualMachineInstance) -> None:
        """A guest that stands still for its snapshot waits for us."""
        vm = self._vms.get(key_of(vmi)) if names.ANNOTATION_SAVE_STATE in vmi.metadata.annotations else None
        if vm is not None:
            self._vm(vm)

    def _vm(self, vm: VirtualMachine) -> None:
        for snapshot in self._snapshots.by_index(SOURCE_INDEX, key_of(vm)):
            if snapshot.status.phase not in (words.SUCCEEDED, words.FAILED) or source.holds(vm, snapshot):
                self._queue.add(key_of(snapshot))


def _unreadable(content: VirtualMachineSnapshotContent) -> str:
    """Somebody else may have made it."""
    try:
        source.kept_vm(content)
    except msgspec.ValidationError as error:
        return f"VirtualMachineSnapshotContent {content.metadata.name} holds no VM: {error}"
    return ""


def _claims_of(pod: Pod) -> set[str]:
    sources = [volume.persistent_volume_claim for volume in pod.spec.volumes]
    return {each.claim_name for each in sources if each is not None}
