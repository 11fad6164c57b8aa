"""The controller of backups: looks at one, its VM and its tracker, lets `decide` decide, and does it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from virt_controller.backup.decide import Decision, World, decide, volume_name
from virt_core.apis import names
from virt_core.apis.backup import (
    FINALIZER_BACKUP,
    TRACKER,
    BackupCheckpoint,
    VirtualMachineBackup,
    VirtualMachineBackupTracker,
    is_over,
)
from virt_core.apis.base import to_plain
from virt_core.apis.facts import is_terminating
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import BackupStatus
from virt_core.apis.volumes import UtilityVolume
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Result
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import op, pointer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_difference, write_operations, write_status
from virt_core.runtime.clock import Clock

#: Backups and trackers by their namespace.
NAMESPACE_INDEX = "namespace"
_BROKEN = "CheckpointRedefinitionFailed"


def namespace_indexer(obj: VirtualMachineBackup | VirtualMachineBackupTracker) -> list[str]:
    return [obj.metadata.namespace]


class BackupController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        backups: Informer[VirtualMachineBackup],
        trackers: Informer[VirtualMachineBackupTracker],
        vms: Informer[VirtualMachine],
        vmis: Informer[VirtualMachineInstance],
        claims: Informer[PersistentVolumeClaim],
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._backups, self._trackers, self._vms, self._vmis, self._claims = backups, trackers, vms, vmis, claims
        self._writes: OwnWrites[VirtualMachineBackup] = OwnWrites()
        self._vmi_writes: OwnWrites[VirtualMachineInstance] = OwnWrites()
        self._tracker_writes: OwnWrites[VirtualMachineBackupTracker] = OwnWrites()
        backups.add_handler(self._wake, lambda _old, new: self._wake(new), self._gone)
        trackers.add_handler(self._tracker, lambda _old, new: self._tracker(new), self._tracker_gone)
        vmis.add_handler(self._vmi, lambda _old, new: self._vmi(new), self._vmi_gone)

    def reconcile(self, key: str) -> Result | None:
        cached = self._backups.get(key)
        if cached is None:
            return None
        backup = self._writes.freshest(cached)
        if is_over(backup) and FINALIZER_BACKUP not in backup.metadata.finalizers:
            return None
        world = self._look(backup)
        decision = decide(backup, world, self._clock.now())
        self._act(backup, world, decision)
        return Result(decision.recheck_s) if decision.recheck_s is not None else None

    # What it looks at

    def _look(self, backup: VirtualMachineBackup) -> World:
        space, source = backup.metadata.namespace, backup.spec.source
        tracker = self._tracked_by(f"{space}/{source.name}") if source.kind == TRACKER else None
        name = source.name if source.kind != TRACKER else tracker.spec.source.name if tracker is not None else ""
        vm = self._vms.get(f"{space}/{name}") if name else None
        vmi = self._machine(vm) if vm is not None else None
        return World(
            vm_name=name,
            tracker=tracker,
            vm=vm,
            vmi=vmi,
            claim=self._claims.get(f"{space}/{backup.spec.pvc_name}"),
            kept=self._kept(space, name),
            moving=vmi is not None and _is_moving(vmi),
        )

    def _tracked_by(self, key: str) -> VirtualMachineBackupTracker | None:
        found = self._trackers.get(key)
        return self._tracker_writes.freshest(found) if found is not None else None

    def _machine(self, vm: VirtualMachine) -> VirtualMachineInstance | None:
        found = self._vmis.get(key_of(vm))
        if found is None or not any(ref.uid == vm.metadata.uid for ref in found.metadata.owner_references):
            return None
        return self._vmi_writes.freshest(found)

    def _kept(self, space: str, vm: str) -> tuple[str, ...]:
        found = (self._tracker_writes.freshest(each) for each in self._trackers.by_index(NAMESPACE_INDEX, space))
        latest = [each.status.latest_checkpoint for each in found if each.spec.source.name == vm]
        return tuple(sorted(each.name for each in latest if each is not None and each.name))

    # What it does

    def _act(self, backup: VirtualMachineBackup, world: World, decision: Decision) -> None:
        """Held before anything is made for it; the tracker before the end is told, lest the chain is lost."""
        if (decision.attach or decision.ask is not None) and not is_terminating(backup):
            backup = self._finalized(backup, [*backup.metadata.finalizers, FINALIZER_BACKUP])
        if decision.attach and world.vmi is not None:
            self._attach(backup, world.vmi)
        if decision.ask is not None and world.vmi is not None:
            self._patch_vmi(world.vmi, _status_operations(decision.ask))
        if decision.checkpoint is not None and world.tracker is not None:
            self._track(world.tracker, decision.checkpoint, decision.broken)
        backup = self._write(backup, decision)
        if decision.clean_up and world.vmi is not None:
            self._clean_up(backup, world.vmi)
        if decision.release:
            self._finalized(backup, [each for each in backup.metadata.finalizers if each != FINALIZER_BACKUP])

    def _finalized(self, backup: VirtualMachineBackup, finalizers: list[str]) -> VirtualMachineBackup:
        wanted = list(dict.fromkeys(finalizers))
        if wanted == backup.metadata.finalizers:
            return backup
        meta = replace(backup.metadata, finalizers=wanted)
        try:
            written = write_difference(self._client, backup, replace(backup, metadata=meta))
        except NotFound:
            return backup
        if written is None:
            return backup
        self._writes.remember(written)
        return written

    def _attach(self, backup: VirtualMachineBackup, vmi: VirtualMachineInstance) -> None:
        volume = UtilityVolume(name=volume_name(backup), claim_name=backup.spec.pvc_name or "", type="Backup")
        wanted = [*vmi.spec.utility_volumes, volume]
        self._patch_vmi(vmi, [op.add(pointer("spec", "utilityVolumes"), [to_plain(each) for each in wanted])])

    def _clean_up(self, backup: VirtualMachineBackup, vmi: VirtualMachineInstance) -> None:
        operations: list[dict[str, Any]] = []
        kept = [each for each in vmi.spec.utility_volumes if each.name != volume_name(backup)]
        if kept != vmi.spec.utility_volumes:
            path = pointer("spec", "utilityVolumes")
            operations.append(op.add(path, [to_plain(each) for each in kept]) if kept else op.remove(path))
        told = vmi.status.changed_block_tracking
        asked = told.backup_status if told is not None else None
        if asked is not None and asked.backup_name == backup.metadata.name:
            operations.append(op.remove(pointer("status", "changedBlockTracking", "backupStatus")))
        self._patch_vmi(vmi, operations)

    def _patch_vmi(self, vmi: VirtualMachineInstance, operations: list[dict[str, Any]]) -> None:
        try:
            written = write_operations(self._client, vmi, operations)
        except NotFound:
            return  # Its end is seen next.
        if written is not None:
            self._vmi_writes.remember(written)

    def _track(self, tracker: VirtualMachineBackupTracker, checkpoint: BackupCheckpoint, broken: str) -> None:
        status = replace(tracker.status, latest_checkpoint=checkpoint, checkpoint_redefinition_required=None)
        try:
            written = write_status(self._client, tracker, replace(tracker, status=status))
        except NotFound:
            return
        if written is not None:
            self._tracker_writes.remember(written)
            if broken:
                self._recorder.event(tracker, names.EVENT_WARNING, _BROKEN, broken)

    def _write(self, backup: VirtualMachineBackup, decision: Decision) -> VirtualMachineBackup:
        try:
            written = write_status(self._client, backup, replace(backup, status=decision.status))
        except NotFound:
            return backup
        if written is None:
            return backup
        for note in decision.notes:
            self._recorder.event(backup, note.type, note.reason, note.message)
        self._writes.remember(written)
        return written

    # What wakes it

    def _wake(self, backup: VirtualMachineBackup) -> None:
        self._queue.add(key_of(backup))

    def _gone(self, backup: VirtualMachineBackup) -> None:
        self._writes.forget(backup.metadata.uid)

    def _tracker(self, tracker: VirtualMachineBackupTracker) -> None:
        self._wake_all(tracker.metadata.namespace)

    def _tracker_gone(self, tracker: VirtualMachineBackupTracker) -> None:
        self._tracker_writes.forget(tracker.metadata.uid)

    def _vmi(self, vmi: VirtualMachineInstance) -> None:
        self._wake_all(vmi.metadata.namespace)

    def _vmi_gone(self, vmi: VirtualMachineInstance) -> None:
        self._vmi_writes.forget(vmi.metadata.uid)
        self._wake_all(vmi.metadata.namespace)

    def _wake_all(self, namespace: str) -> None:
        """There are few that are not over."""
        for backup in self._backups.by_index(NAMESPACE_INDEX, namespace):
            if not is_over(backup) or FINALIZER_BACKUP in backup.metadata.finalizers:
                self._queue.add(key_of(backup))


def _status_operations(ask: BackupStatus) -> list[dict[str, Any]]:
    return [op.add(pointer("status", "changedBlockTracking", "backupStatus"), to_plain(ask))]


def _is_moving(vmi: VirtualMachineInstance) -> bool:
    move = vmi.status.migration_state
    return move is not None and bool(move.migration_uid) and not (move.completed or move.failed)
