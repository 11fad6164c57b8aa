"""The controller of restores: one step after the other, each of which can be done twice."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from virt_controller.restore import claims as plan
from virt_controller.restore import decide, target
from virt_controller.restore.decide import Hopeless, NotReady, Trouble, Waiting
from virt_controller.restore.volumes import Volumes
from virt_controller.snapshot import memory, source
from virt_controller.snapshot.calls import Calls
from virt_controller.snapshot.revisions import Revisions
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.facts import is_terminating
from virt_core.apis.hibernation import DISCARDED, KEPT, VirtualMachineHibernation
from virt_core.apis.registry import owner_reference
from virt_core.apis.snapshot import (
    VirtualMachineRestore,
    VirtualMachineRestoreStatus,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
)
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Result
from virt_core.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import op, pointer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_difference, write_operations, write_status
from virt_core.runtime.clock import Clock

#: Restores by the key of their target.
TARGET_INDEX = "target"
_RETRY_S = 5.0
_COMPLETE, _ERROR, _NOT_READY = "VirtualMachineRestoreComplete", "VirtualMachineRestoreError", "RestoreTargetNotReady"


def target_indexer(restore: VirtualMachineRestore) -> list[str]:
    return [f"{restore.metadata.namespace}/{restore.spec.target.name}"]


class RestoreController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        restores: Informer[VirtualMachineRestore],
        snapshots: Informer[VirtualMachineSnapshot],
        contents: Informer[VirtualMachineSnapshotContent],
        vms: Informer[VirtualMachine],
        vmis: Informer[VirtualMachineInstance],
        claims: Informer[PersistentVolumeClaim],
        volumes: Volumes,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._restores, self._snapshots, self._contents = restores, snapshots, contents
        self._vms, self._vmis, self._volumes = vms, vmis, volumes
        self._calls, self._copies = Calls(client), Revisions(client)
        self._writes: OwnWrites[VirtualMachineRestore] = OwnWrites()
        self._vm_writes: OwnWrites[VirtualMachine] = OwnWrites()
        restores.add_handler(self._wake, lambda _old, new: self._wake(new), self._gone)
        for informer in (vms, vmis):
            informer.add_handler(self._machine, lambda _old, new: self._machine(new), self._machine)
        claims.add_handler(self._claim, lambda _old, new: self._claim(new), self._claim)

    def reconcile(self, key: str) -> Result | None:
        cached = self._restores.get(key)
        if cached is None:
            return None
        restore = self._writes.freshest(cached)
        if is_terminating(restore):
            self._end(restore)
            return None
        if words.is_over(restore):
            self._unlock(restore)
            return None
        if not restore.status.conditions:
            restore = self._write(restore, decide.begun(restore, self._clock.now()))
        return self._go_on(restore)

    def _go_on(self, restore: VirtualMachineRestore) -> Result | None:
        key = key_of(restore)
        try:
            self._work(restore)
        except Conflict:
            raise
        except NotReady as wait:
            self._tell(key, _NOT_READY, str(wait))
            self._note(key, decide.waiting, decide.WAITING_FOR_STOP)
            return Result(min(_RETRY_S, wait.left_s) if wait.left_s is not None else _RETRY_S)
        except Waiting as wait:
            self._note(key, decide.waiting, str(wait))
        except Hopeless as end:
            self._tell(key, _ERROR, str(end))
            self._note(key, decide.failed, str(end))
            self._unlock(restore)
            return None
        except (Trouble, ApiError) as trouble:
            self._tell(key, getattr(trouble, "event", "") or _ERROR, str(trouble))
            self._note(key, decide.troubled, str(trouble))
        else:
            return None
        return Result(_RETRY_S)

    def _end(self, restore: VirtualMachineRestore) -> None:
        if not restore.status.complete and not target.is_restored(restore, self._vm(restore)):
            self._volumes.drop(restore)
        self._unlock(restore)
        self._let_go(restore)

    def _work(self, restore: VirtualMachineRestore) -> None:
        """Raises HoldUp, ApiError. Which step is the next one is read off what is there."""
        vm = self._vm(restore)
        restore = self._hold(restore, vm)
        if not target.is_restored(restore, vm):
            vm = self._restore(restore, vm)
            restore = self._fresh(restore)
        assert vm is not None
        self._copies.adopt(vm)
        self._volumes.finish(restore, vm)
        # Who sees that it is complete may start the VM at once.
        self._unlock(restore)
        self._write(restore, decide.completed(restore.status, self._clock.now()))
        text = f"VM {vm.metadata.name} is as snapshot {restore.spec.virtual_machine_snapshot_name} has it"
        self._recorder.event(restore, names.EVENT_NORMAL, _COMPLETE, text)

    def _restore(self, restore: VirtualMachineRestore, vm: VirtualMachine | None) -> VirtualMachine:
        """Everything up to the VM's new spec."""
        now, space = self._clock.now(), restore.metadata.namespace
        try:
            decide.check_target(restore, self._vmis.get(f"{space}/{restore.spec.target.name}"), now)
        except NotReady as wait:
            self._stop(vm, wait)
            raise
        snapshot = self._snapshots.get(f"{space}/{restore.spec.virtual_machine_snapshot_name}")
        content = self._contents.get(f"{space}/{words.content_name(snapshot)}") if snapshot is not None else None
        snapshot, content = decide.check_snapshot(restore, snapshot, content, vm)
        try:
            kept = source.kept_vm(content)
            found = plan.kept(content, kept, restore.spec.target.name)
        except msgspec.ValidationError as error:
            raise Hopeless(f"VirtualMachineSnapshotContent {content.metadata.name} cannot be read: {error}") from error
        if vm is not None:
            vm = self._lock(restore, vm)
        else:
            self._new(restore, kept, kept.spec)  # What cannot be made is known before its claims are.
        if not restore.status.restores and found:
            planned = plan.planned(restore, found, kept, self._volumes.there(space, found))
            status = decide.waiting(replace(restore.status, restores=planned), decide.CREATING_CLAIMS, now)
            restore = self._write(restore, status)
        self._volumes.make(restore, found, kept, vm)
        return self._change(restore, snapshot, kept, vm)

    def _change(
        self,
        restore: VirtualMachineRestore,
        snapshot: VirtualMachineSnapshot,
        kept: VirtualMachine,
        vm: VirtualMachine | None,
    ) -> VirtualMachine:
        now, name = self._clock.now(), restore.spec.target.name
        status = decide.waiting(restore.status, decide.UPDATING_TARGET, now)
        spec = target.spec_with(kept.spec, restore.status.restores)
        if vm is not None:
            gone = target.replaced_data_volumes(vm, spec)
            status = replace(status, deleted_data_volumes=sorted({*status.deleted_data_volumes, *gone}))
        restore = self._write(restore, status)
        spec = self._copies.give_back(spec, snapshot.metadata.name, name, restore.metadata.namespace, vm)
        if vm is not None:
            self._volumes.change_state(restore, vm)
            written = write_operations(self._client, vm, target.in_place(restore, vm, spec))
            return self._remember(written or vm)
        made = self._new(restore, kept, spec)
        try:
            return self._remember(self._client.create(made))
        except AlreadyExists as error:
            raise Trouble(f"VM {name} came to be meanwhile") from error

    @staticmethod
    def _new(restore: VirtualMachineRestore, kept: VirtualMachine, spec: VirtualMachineSpec) -> VirtualMachine:
        try:
            return target.new_vm(restore, kept, spec)
        except target.PatchFailedError as error:
            raise Hopeless(str(error)) from error

    # The VM

    def _vm(self, restore: VirtualMachineRestore) -> VirtualMachine | None:
        cached = self._vms.get(f"{restore.metadata.namespace}/{restore.spec.target.name}")
        return self._vm_writes.freshest(cached) if cached is not None else None

    def _remember(self, vm: VirtualMachine) -> VirtualMachine:
        self._vm_writes.remember(vm)
        return vm

    def _stop(self, vm: VirtualMachine | None, wait: NotReady) -> None:
        if not wait.stop or vm is None:
            return
        try:
            self._calls.stop(vm)
        except Conflict:
            return  # It ends already.

    def _lock(self, restore: VirtualMachineRestore, vm: VirtualMachine) -> VirtualMachine:
        if vm.status.restore_in_progress == restore.metadata.name:
            return vm
        status = replace(vm.status, restore_in_progress=restore.metadata.name)
        written = write_status(self._client, vm, replace(vm, status=status))
        return self._remember(written) if written is not None else vm

    def _unlock(self, restore: VirtualMachineRestore) -> None:
        vm = self._vm(restore)
        if vm is None or vm.status.restore_in_progress != restore.metadata.name:
            return
        status = replace(vm.status, restore_in_progress=None)
        if target.is_restored(restore, vm):
            # The claim that took it is not among the restored volumes.
            status = replace(status, memory_dump_request=None, hibernation=self._state(restore, vm))
        try:
            written = write_status(self._client, vm, replace(vm, status=status))
        except NotFound:
            return
        if written is not None:
            self._remember(written)

    def _state(self, restore: VirtualMachineRestore, vm: VirtualMachine) -> VirtualMachineHibernation | None:
        """The state that came with the disks. Another one was that of disks which are gone."""
        row = next((r for r in restore.status.restores if r.volume_name == names.VOLUME_MACHINE_STATE), None)
        name = restore.spec.virtual_machine_snapshot_name
        snapshot = self._snapshots.get(f"{restore.metadata.namespace}/{name}")
        content = None
        if snapshot is not None:
            content = self._contents.get(f"{restore.metadata.namespace}/{words.content_name(snapshot)}")
        found = memory.kept_in(content) if row is not None and content is not None else None
        if found is not None and row is not None:
            return replace(found, claim_name=row.persistent_volume_claim, owned=True)
        old = vm.status.hibernation
        return replace(old, phase=DISCARDED) if old is not None and old.phase in KEPT else old

    # The restore itself

    def _fresh(self, restore: VirtualMachineRestore) -> VirtualMachineRestore:
        cached = self._restores.get(key_of(restore))
        return self._writes.freshest(cached) if cached is not None else restore

    def _hold(self, restore: VirtualMachineRestore, vm: VirtualMachine | None) -> VirtualMachineRestore:
        operations = []
        if words.FINALIZER_RESTORE not in restore.metadata.finalizers:
            finalizers = [*restore.metadata.finalizers, words.FINALIZER_RESTORE]
            operations.append(op.add(pointer("metadata", "finalizers"), finalizers))
        if vm is not None and not restore.metadata.owner_references and not is_terminating(vm):
            owners = [owner_reference(vm)]
            operations.append(op.add(pointer("metadata", "ownerReferences"), owners))
        written = write_operations(self._client, restore, operations)
        if written is None:
            return restore
        self._writes.remember(written)
        return written

    def _let_go(self, restore: VirtualMachineRestore) -> None:
        kept = [each for each in restore.metadata.finalizers if each != words.FINALIZER_RESTORE]
        meta = replace(restore.metadata, finalizers=kept)
        try:
            write_difference(self._client, restore, replace(restore, metadata=meta))
        except NotFound:
            return

    def _write(self, restore: VirtualMachineRestore, status: VirtualMachineRestoreStatus) -> VirtualMachineRestore:
        try:
            written = write_status(self._client, restore, replace(restore, status=status))
        except NotFound:
            return restore
        if written is None:
            return restore
        self._writes.remember(written)
        return written

    def _note(self, key: str, told: decide.Tell, text: str) -> None:
        cached = self._restores.get(key)
        if cached is None:
            return
        restore = self._writes.freshest(cached)
        self._write(restore, told(restore.status, text, self._clock.now()))

    def _tell(self, key: str, reason: str, text: str) -> None:
        restore = self._restores.get(key)
        if restore is not None:
            self._recorder.event(restore, names.EVENT_WARNING, reason, text)

    # What wakes it

    def _wake(self, restore: VirtualMachineRestore) -> None:
        self._queue.add(key_of(restore))

    def _gone(self, restore: VirtualMachineRestore) -> None:
        self._writes.forget(restore.metadata.uid)

    def _machine(self, machine: VirtualMachine | VirtualMachineInstance) -> None:
        for restore in self._restores.by_index(TARGET_INDEX, key_of(machine)):
            if not words.is_over(restore):
                self._queue.add(key_of(restore))

    def _claim(self, claim: PersistentVolumeClaim) -> None:
        if name := claim.metadata.annotations.get(words.ANNOTATION_RESTORE_NAME):
            restore = self._restores.get(f"{claim.metadata.namespace}/{name}")
            if restore is not None and not words.is_over(restore):
                self._queue.add(key_of(restore))
