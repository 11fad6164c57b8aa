"""The controller of VirtualMachineClones: looks at one and what was made for it, lets `decide` decide, and does it."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from virt_controller.clone import render
from virt_controller.clone.decide import (
    FAILED,
    PROGRESSING,
    SUCCEEDED,
    Decision,
    World,
    claims_of,
    decide,
    failed,
    is_of,
)
from virt_controller.vmi.keptstate import STATE_INDEX
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.clone import FINALIZER_CLONE, VirtualMachineClone
from virt_core.apis.facts import is_terminating
from virt_core.apis.snapshot import VirtualMachineRestore, VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.kube.client import KubeClient, KubeObject
from virt_core.kube.conditions import get_condition
from virt_core.kube.controller import Result
from virt_core.kube.errors import AlreadyExists, ApiError, Invalid, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_difference, write_status
from virt_core.runtime.clock import Clock

#: Clones by what they read: `kind/namespace/name`.
ABOUT_INDEX = "about"
_VM, _SNAPSHOT, _RESTORE = "VirtualMachine", "VirtualMachineSnapshot", "VirtualMachineRestore"

T = TypeVar("T", bound=KubeObject)
Temporary = VirtualMachineSnapshot | VirtualMachineRestore


def about(clone: VirtualMachineClone) -> list[str]:
    """Of what a change may matter to it."""
    space = clone.metadata.namespace
    found = [
        f"{_VM}/{space}/{render.target_name(clone)}",
        f"{_SNAPSHOT}/{space}/{render.snapshot_name(clone)}",
        f"{_RESTORE}/{space}/{render.restore_name(clone)}",
    ]
    if clone.spec.source.kind == render.VM:
        found.append(f"{_VM}/{space}/{clone.spec.source.name}")
    return found


class CloneController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        clones: Informer[VirtualMachineClone],
        vms: Informer[VirtualMachine],
        snapshots: Informer[VirtualMachineSnapshot],
        contents: Informer[VirtualMachineSnapshotContent],
        restores: Informer[VirtualMachineRestore],
        claims: Informer[PersistentVolumeClaim],
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._clones, self._vms, self._claims = clones, vms, claims
        self._snapshots, self._contents, self._restores = snapshots, contents, restores
        self._writes: OwnWrites[VirtualMachineClone] = OwnWrites()
        clones.add_handler(self._changed, lambda _old, new: self._changed(new), self._gone)
        self._listen()

    def reconcile(self, key: str) -> Result | None:
        cached = self._clones.get(key)
        if cached is None:
            return None
        clone = self._writes.freshest(cached)
        if is_terminating(clone) and FINALIZER_CLONE not in clone.metadata.finalizers:
            return None
        world = self._look(clone)
        decision = decide(clone, world, self._clock.now())
        self._act(clone, world, decision)
        return Result(decision.recheck_s) if decision.recheck_s is not None else None

    # What it looks at

    def _look(self, clone: VirtualMachineClone) -> World:
        space, source = clone.metadata.namespace, clone.spec.source
        snapshot = self._found(VirtualMachineSnapshot, self._snapshots, clone, render.snapshot_name(clone))
        restore = self._found(VirtualMachineRestore, self._restores, clone, render.restore_name(clone))
        content = snapshot.status.virtual_machine_snapshot_content_name if snapshot is not None else None
        target = self._vms.get(f"{space}/{render.target_name(clone)}")
        of_vm = source.kind == render.VM
        state = f"{space}/{names.vmi_id(source.name)}"
        return World(
            source=self._vms.get(f"{space}/{source.name}") if of_vm else None,
            keeps_state=of_vm and bool(self._claims.by_index(STATE_INDEX, state)),
            snapshot=snapshot,
            content=self._contents.get(f"{space}/{content}") if content else None,
            restore=restore,
            target=target,
            claims=self._claims_named(space, claims_of(restore, target)) if _is_settling(clone) else {},
        )

    def _found(self, cls: type[T], informer: Informer[T], clone: VirtualMachineClone, name: str) -> T | None:
        """What the live copy does not show may have been made by us a moment ago. A clone that is over looks at what is
        left of it only."""
        space, status = clone.metadata.namespace, clone.status
        over = status.phase in (SUCCEEDED, FAILED) and not status.snapshot_name and not status.restore_name
        return informer.get(f"{space}/{name}") if over else self._surely(cls, informer, space, name)

    def _surely(self, cls: type[T], informer: Informer[T], space: str, name: str) -> T | None:
        found = informer.get(f"{space}/{name}")
        if found is not None:
            return found
        try:
            return self._client.get(cls, name, space)
        except NotFound:
            return None

    def _claims_named(self, space: str, wanted: set[str]) -> dict[str, PersistentVolumeClaim]:
        found = {name: self._surely(PersistentVolumeClaim, self._claims, space, name) for name in wanted}
        return {name: claim for name, claim in found.items() if claim is not None}

    # What it does

    def _act(self, clone: VirtualMachineClone, world: World, decision: Decision) -> None:
        """First what the status speaks of, then the status; what is not needed any more goes last."""
        if decision.create_snapshot:
            self._create(render.snapshot_of(clone))
        if decision.restore_from is not None:
            clone = self._finalized(clone, [*clone.metadata.finalizers, FINALIZER_CLONE])
            if not self._restore(clone, decision.restore_from):
                return
        clone = self._write(clone, decision)
        if decision.clean_up:
            self._clean_up(clone, world)
        if decision.let_go:
            clone = self._finalized(clone, [each for each in clone.metadata.finalizers if each != FINALIZER_CLONE])
        if decision.delete_clone:
            self._delete(clone)

    def _finalized(self, clone: VirtualMachineClone, finalizers: list[str]) -> VirtualMachineClone:
        wanted = list(dict.fromkeys(finalizers))
        if wanted == clone.metadata.finalizers:
            return clone
        try:
            written = write_difference(
                self._client, clone, replace(clone, metadata=replace(clone.metadata, finalizers=wanted))
            )
        except NotFound:
            return clone
        return self._remember(written) if written is not None else clone

    def _remember(self, clone: VirtualMachineClone) -> VirtualMachineClone:
        self._writes.remember(clone)
        return clone

    def _restore(self, clone: VirtualMachineClone, saved: VirtualMachine) -> bool:
        try:
            self._create(render.restore_of(clone, saved))
        except Invalid as error:
            # The door has said no, and would say so again.
            self._write(clone, failed(clone, "RestoreCreationFailed", str(error), self._clock.now()))
            return False
        except ApiError as error:
            self._recorder.event(clone, names.EVENT_WARNING, "RestoreCreationFailed", str(error))
            raise
        return True

    def _create(self, made: Temporary) -> None:
        try:
            self._client.create(made)
        except AlreadyExists:
            return

    def _write(self, clone: VirtualMachineClone, decision: Decision) -> VirtualMachineClone:
        try:
            written = write_status(self._client, clone, replace(clone, status=decision.status))
        except NotFound:
            return clone
        if written is None:
            return clone
        for note in decision.notes:
            if note.type == names.EVENT_NORMAL or _said(clone) != note.message:
                self._recorder.event(clone, note.type, note.reason, note.message)
        return self._remember(written)

    def _clean_up(self, clone: VirtualMachineClone, world: World) -> None:
        """Only what was made for it. The restore first: it reads the snapshot."""
        for made in (world.restore, world.snapshot):
            if made is not None and is_of(clone, made) and not is_terminating(made):
                self._delete(made)

    def _delete(self, obj: Temporary | VirtualMachineClone) -> None:
        try:
            self._client.delete(type(obj), obj.metadata.name, obj.metadata.namespace, uid=obj.metadata.uid)
        except NotFound:
            return

    # What wakes it

    def _listen(self) -> None:
        self._vms.add_handler(self._vm, lambda _old, new: self._vm(new), self._vm)
        self._snapshots.add_handler(self._snapshot, lambda _old, new: self._snapshot(new), self._snapshot)
        self._contents.add_handler(self._content, lambda _old, new: self._content(new), self._content)
        self._restores.add_handler(self._restored, lambda _old, new: self._restored(new), self._restored)
        self._claims.add_handler(self._claim, lambda _old, new: self._claim(new), self._claim)

    def _vm(self, vm: VirtualMachine) -> None:
        self._wake(_VM, vm.metadata.namespace, vm.metadata.name)

    def _snapshot(self, snapshot: VirtualMachineSnapshot) -> None:
        self._wake(_SNAPSHOT, snapshot.metadata.namespace, snapshot.metadata.name)

    def _content(self, content: VirtualMachineSnapshotContent) -> None:
        self._wake(_SNAPSHOT, content.metadata.namespace, content.spec.virtual_machine_snapshot_name or "")

    def _restored(self, restore: VirtualMachineRestore) -> None:
        self._wake(_RESTORE, restore.metadata.namespace, restore.metadata.name)

    def _claim(self, claim: PersistentVolumeClaim) -> None:
        if name := claim.metadata.annotations.get(words.ANNOTATION_RESTORE_NAME):
            self._wake(_RESTORE, claim.metadata.namespace, name)

    def _wake(self, kind: str, namespace: str, name: str) -> None:
        for clone in self._clones.by_index(ABOUT_INDEX, f"{kind}/{namespace}/{name}"):
            self._queue.add(key_of(clone))

    def _changed(self, clone: VirtualMachineClone) -> None:
        self._queue.add(key_of(clone))

    def _gone(self, clone: VirtualMachineClone) -> None:
        self._writes.forget(clone.metadata.uid)


def _is_settling(clone: VirtualMachineClone) -> bool:
    """The new VM is there, and what it was made from is as well."""
    return clone.status.phase == SUCCEEDED and bool(clone.status.snapshot_name or clone.status.restore_name)


def _said(clone: VirtualMachineClone) -> str:
    found = get_condition(clone.status.conditions, PROGRESSING)
    return found.message if found is not None else ""
