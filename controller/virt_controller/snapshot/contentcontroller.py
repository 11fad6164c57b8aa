"""The controller of what snapshots hold: looks at one, the guest and its VolumeSnapshots, and does what is decided."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from virt_controller.snapshot.calls import Calls
from virt_controller.snapshot.contents import Decision, World, decide, in_error, is_left_frozen, volume_snapshot
from virt_controller.snapshot.decide import RETRY_S
from virt_controller.snapshot.storage import SnapshotStorage
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.facts import is_terminating
from virt_core.apis.snapshot import VirtualMachineSnapshot, VirtualMachineSnapshotContent, VolumeBackup
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumesnapshots import VolumeSnapshot
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Result
from virt_core.kube.errors import AlreadyExists, ApiError, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import op, pointer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_difference, write_operations, write_status
from virt_core.runtime.clock import Clock
from virt_core.runtime.times import rfc3339

#: What Windows says when it has let its file systems go by itself.
_VSS = "fsfreeze is limited"
_CREATED, _MISSING, _FREEZE_ERROR = "SuccessfulVolumeSnapshotCreate", "VolumeSnapshotMissing", "FreezeError"


class ContentController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        contents: Informer[VirtualMachineSnapshotContent],
        snapshots: Informer[VirtualMachineSnapshot],
        vms: Informer[VirtualMachine],
        vmis: Informer[VirtualMachineInstance],
        saved: Informer[VolumeSnapshot],
        storage: SnapshotStorage,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._contents, self._snapshots, self._vms, self._vmis = contents, snapshots, vms, vmis
        self._saved, self._storage, self._calls = saved, storage, Calls(client)
        self._writes: OwnWrites[VirtualMachineSnapshotContent] = OwnWrites()
        contents.add_handler(self._wake, lambda _old, new: self._wake(new), self._gone)
        snapshots.add_handler(self._snapshot, lambda _old, new: self._snapshot(new), self._snapshot)
        vms.add_handler(self._vm, lambda _old, new: self._vm(new))
        saved.add_handler(self._volume, lambda _old, new: self._volume(new), self._volume)

    def reconcile(self, key: str) -> Result | None:
        cached = self._contents.get(key)
        if cached is None:
            return None
        content = self._writes.freshest(cached)
        world = self._look(content)
        if is_terminating(content):
            self._end(content, world)
            return None
        decision = decide(content, world, self._clock.now())
        return self._act(content, world, decision)

    def _look(self, content: VirtualMachineSnapshotContent) -> World:
        space = content.metadata.namespace
        snapshot = self._snapshots.get(f"{space}/{content.spec.virtual_machine_snapshot_name}")
        if snapshot is not None and words.content_name(snapshot) != content.metadata.name:
            snapshot = None  # Another one of that name.
        vm = self._vms.get(f"{space}/{snapshot.spec.source.name}") if snapshot is not None else None
        vmi = self._vmis.get(key_of(vm)) if vm is not None else None
        saved, trouble = self._volumes(content)
        return World(snapshot=snapshot, vm=vm, vmi=vmi, saved=saved, trouble=trouble)

    def _volumes(self, content: VirtualMachineSnapshotContent) -> tuple[dict[str, VolumeSnapshot], dict[str, str]]:
        """What is saved, and by volume why one cannot be. What only has the name is not believed."""
        saved: dict[str, VolumeSnapshot] = {}
        trouble: dict[str, str] = {}
        for backup in content.spec.volume_backups:
            found = self._saved.get(f"{content.metadata.namespace}/{backup.volume_snapshot_name}")
            if found is None:
                choice = self._storage.choose(_class_of(backup))
                trouble |= {} if choice.name else {backup.volume_name: choice.why}
            elif any(ref.uid == content.metadata.uid for ref in found.metadata.owner_references):
                saved[found.metadata.name] = found
            else:
                trouble[backup.volume_name] = f"VolumeSnapshot {found.metadata.name} is there, and is somebody else's"
        return saved, trouble

    # What it does

    def _act(self, content: VirtualMachineSnapshotContent, world: World, decision: Decision) -> Result | None:
        now, status = self._clock.now(), decision.status
        if decision.freeze_s is not None and world.vmi is not None:
            try:
                self._calls.freeze(world.vmi, decision.freeze_s)
            except ApiError as error:
                self._recorder.event(world.vmi, names.EVENT_WARNING, _FREEZE_ERROR, str(error))
                self._write(content, replace(content, status=in_error(content.status, str(error), now)))
                return Result(RETRY_S)
            content = self._note(content, now + timedelta(seconds=decision.freeze_s))
        for backup in decision.create:
            self._create(content, backup)
        if decision.thaw and world.vmi is not None:
            try:
                self._calls.thaw(world.vmi)
            except ApiError as error:
                if _VSS in str(error):
                    content = self._note(content, now)
                status = replace(in_error(status, str(error), now), creation_time=None)
                self._write(content, replace(content, status=status))
                return Result(RETRY_S)
        self._tell_missing(content, decision)
        self._write(content, replace(content, status=status))
        return Result(decision.recheck_s) if decision.recheck_s is not None else None

    def _note(self, content: VirtualMachineSnapshotContent, until: datetime) -> VirtualMachineSnapshotContent:
        """When the guest goes on by itself: so it is frozen once, and whoever comes after us knows."""
        notes = content.metadata.annotations | {words.ANNOTATION_FROZEN_UNTIL: rfc3339(until)}
        meta = replace(content.metadata, annotations=notes)
        written = write_difference(self._client, content, replace(content, metadata=meta))
        if written is not None:
            self._writes.remember(written)
        return written or content

    def _create(self, content: VirtualMachineSnapshotContent, backup: VolumeBackup) -> None:
        chosen = self._storage.choose(_class_of(backup))
        wanted = volume_snapshot(content, backup, chosen.name)
        try:
            self._client.create(wanted)
        except AlreadyExists:
            return
        text = f"made VolumeSnapshot {wanted.metadata.name}"
        self._recorder.event(content, names.EVENT_NORMAL, _CREATED, text)

    def _tell_missing(self, content: VirtualMachineSnapshotContent, decision: Decision) -> None:
        error = content.status.error
        text = f"VolumeSnapshots are missing: {', '.join(decision.missing)}"
        if decision.missing and (error is None or error != decision.status.error):
            self._recorder.event(content, names.EVENT_WARNING, _MISSING, text)

    def _end(self, content: VirtualMachineSnapshotContent, world: World) -> None:
        """It was given up, or is wanted no more: no guest stands still for it."""
        if world.vmi is not None and is_left_frozen(content, world, self._clock.now()):
            self._calls.thaw(world.vmi)
        if words.FINALIZER_CONTENT not in content.metadata.finalizers:
            return
        kept = [each for each in content.metadata.finalizers if each != words.FINALIZER_CONTENT]
        try:
            write_operations(self._client, content, [op.add(pointer("metadata", "finalizers"), kept)])
        except NotFound:
            return

    def _write(self, old: VirtualMachineSnapshotContent, new: VirtualMachineSnapshotContent) -> None:
        try:
            written = write_status(self._client, old, new)
        except NotFound:
            return
        if written is not None:
            self._writes.remember(written)

    # What wakes it

    def _wake(self, content: VirtualMachineSnapshotContent) -> None:
        self._queue.add(key_of(content))

    def _gone(self, content: VirtualMachineSnapshotContent) -> None:
        self._writes.forget(content.metadata.uid)

    def _snapshot(self, snapshot: VirtualMachineSnapshot) -> None:
        self._queue.add(f"{snapshot.metadata.namespace}/{words.content_name(snapshot)}")

    def _vm(self, vm: VirtualMachine) -> None:
        """It is held from now on."""
        snapshot = self._snapshots.get(f"{vm.metadata.namespace}/{vm.status.snapshot_in_progress}")
        if snapshot is not None:
            self._snapshot(snapshot)

    def _volume(self, saved: VolumeSnapshot) -> None:
        for ref in saved.metadata.owner_references:
            if ref.kind == "VirtualMachineSnapshotContent":
                self._queue.add(f"{saved.metadata.namespace}/{ref.name}")


def _class_of(backup: VolumeBackup) -> str:
    spec = backup.persistent_volume_claim.get("spec") or {}
    return str(spec.get("storageClassName") or "")
