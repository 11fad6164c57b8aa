"""What becomes of a VirtualMachineClone: the snapshot and the restore it needs, its phase, its conditions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from msgspec.structs import replace

from virt_controller.clone import render
from virt_controller.notes import Note
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.clone import VirtualMachineClone, VirtualMachineCloneStatus
from virt_core.apis.facts import is_terminating
from virt_core.apis.keptstate import keeps_state
from virt_core.apis.meta import Condition
from virt_core.apis.snapshot import VirtualMachineRestore, VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.volumes import Volume
from virt_core.kube.conditions import get_condition, set_condition
from virt_core.runtime.times import parse_rfc3339, rfc3339

SNAPSHOT_IN_PROGRESS, RESTORE_IN_PROGRESS = "SnapshotInProgress", "RestoreInProgress"
CREATING_TARGET, SUCCEEDED, FAILED = "CreatingTargetVM", "Succeeded", "Failed"
PROGRESSING, READY = "Progressing", "Ready"
#: Reasons of both conditions.
REASON_PENDING, REASON_FAILED, REASON_PROCESSING, REASON_READY = "Pending", "Failed", "Still processing", "Ready"

#: Whoever can end a wait wakes us; this is for the case that nobody did.
LOOK_AGAIN_S = 60.0
#: A restore tries again after an error. One that has had nothing but errors for so long needs somebody.
GIVE_UP_S = 600.0


@dataclass(frozen=True, slots=True)
class World:
    """What there is around a clone."""

    source: VirtualMachine | None = None
    #: There is a claim with what the source's firmware or TPM stores.
    keeps_state: bool = False
    #: The one that it is made from, and what that holds.
    snapshot: VirtualMachineSnapshot | None = None
    content: VirtualMachineSnapshotContent | None = None
    restore: VirtualMachineRestore | None = None
    target: VirtualMachine | None = None
    #: Those of the new VM that are there, by name.
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    status: VirtualMachineCloneStatus
    notes: tuple[Note, ...] = ()
    create_snapshot: bool = False
    #: The VM as the snapshot has it, of which the new one is to be made.
    restore_from: VirtualMachine | None = None
    #: The snapshot and the restore that were made for this clone are not needed any more.
    clean_up: bool = False
    delete_clone: bool = False
    #: No claim can be left behind any more, so that the clone may go at any time.
    let_go: bool = False
    recheck_s: float | None = None


def decide(clone: VirtualMachineClone, world: World, now: datetime) -> Decision:
    state = _State(clone, world, now)
    if clone.status.phase == FAILED or is_terminating(clone):
        return _leaves(clone, world)
    if clone.status.phase == SUCCEEDED:
        return _settled(state)
    if (stranger := _stranger(clone, world)) is not None:
        return state.failed(*stranger)
    if world.restore is not None:
        return _restoring(state, world.restore)
    if clone.status.restore_name:
        return state.failed("RestoreDeleted", f"VirtualMachineRestore {clone.status.restore_name} is gone")
    if world.snapshot is None:
        return _without_snapshot(state)
    if world.snapshot.status.phase == "Failed":
        words = f"VirtualMachineSnapshot {_named(world.snapshot)} failed{_why(world.snapshot)}"
        return state.failed("SnapshotFailed", words)
    if not world.snapshot.status.ready_to_use:
        return state.goes_on(SNAPSHOT_IN_PROGRESS, f"waiting for VirtualMachineSnapshot {_named(world.snapshot)}")
    return _from_snapshot(state, world.snapshot)


def failed(clone: VirtualMachineClone, reason: str, words: str, now: datetime) -> Decision:
    """Because of what was answered when it was done."""
    return _State(clone, World(), now).failed(reason, words)


def _leaves(clone: VirtualMachineClone, world: World) -> Decision:
    """It is over, or it goes: then also what was made for it. A restore takes the claims along that no VM came to."""
    mine = world.restore is not None and is_of(clone, world.restore)
    return Decision(clone.status, clean_up=True, let_go=not mine)


def _stranger(clone: VirtualMachineClone, world: World) -> tuple[str, str] | None:
    """What has the name of ours and is not ours says nothing about us."""
    if world.restore is not None and not is_of(clone, world.restore):
        words = f"there is a VirtualMachineRestore {_named(world.restore)} already, and it is not this clone's"
        return "RestoreCreationFailed", words
    made = clone.spec.source.kind == render.VM
    if made and world.snapshot is not None and not is_of(clone, world.snapshot):
        words = f"there is a VirtualMachineSnapshot {_named(world.snapshot)} already, and it is not this clone's"
        return "SnapshotCreationFailed", words
    return None


def is_of(clone: VirtualMachineClone, made: VirtualMachineSnapshot | VirtualMachineRestore) -> bool:
    return any(ref.uid == clone.metadata.uid for ref in made.metadata.owner_references)


def _named(obj: VirtualMachineSnapshot | VirtualMachineRestore) -> str:
    return obj.metadata.name


def _why(snapshot: VirtualMachineSnapshot) -> str:
    told = [snapshot.status.error.message if snapshot.status.error is not None else None]
    told += [each.message or each.reason for each in snapshot.status.conditions if each.type == names.CONDITION_FAILURE]
    said = next(filter(None, told), "")
    return f": {said}" if said else ""


# Before there is a snapshot


def _without_snapshot(state: _State) -> Decision:
    clone, source = state.clone, state.world.source
    name = render.snapshot_name(clone)
    if clone.status.snapshot_name:
        return state.failed("SnapshotDeleted", f"VirtualMachineSnapshot {name} is gone")
    if clone.spec.source.kind == render.SNAPSHOT:
        return state.pending("SourceDoesNotExist", f"there is no VirtualMachineSnapshot {name} yet")
    if source is None or is_terminating(source):
        return state.pending("SourceDoesNotExist", f"there is no VirtualMachine {clone.spec.source.name} yet")
    if (refused := _refused(state, source)) is not None:
        return refused
    if missing := unsaved_volumes(source):
        return state.pending("VMVolumeSnapshotsInvalid", "; ".join(missing))
    begun = state.goes_on(SNAPSHOT_IN_PROGRESS, f"waiting for VirtualMachineSnapshot {name}")
    note = Note("SnapshotCreated", f"made VirtualMachineSnapshot {name} of VirtualMachine {source.metadata.name}")
    return _changed(begun, create_snapshot=True, notes=(note,))


def _refused(state: _State, saved: VirtualMachine) -> Decision | None:
    """What no waiting mends."""
    clone = state.clone
    if state.world.keeps_state or keeps_state(render.machine_of(saved)):
        words = f"VirtualMachine {saved.metadata.name} keeps what its firmware or TPM stores, which is not cloned"
        return state.failed("SourceVMWithBackendStorageInvalid", words)
    if unknown := render.unknown_interfaces(clone.spec, saved):
        words = f"spec.newMacAddresses: VirtualMachine {saved.metadata.name} has no interface {', '.join(unknown)}"
        return state.failed("UnknownInterface", words)
    if fault := render.patch_fault(clone, saved):
        return state.failed("PatchInvalid", fault)
    if state.world.target is not None:
        return state.failed("TargetExists", f"there is a VirtualMachine {render.target_name(clone)} already")
    return None


def _is_kept(volume: Volume) -> bool:
    return volume.persistent_volume_claim is not None or volume.data_volume is not None


def unsaved_volumes(vm: VirtualMachine) -> list[str]:
    """Disks that no snapshot would have, and why: a copy without them would not be one."""
    known = {each.name: each for each in vm.status.volume_snapshot_statuses}
    found = []
    for volume in filter(_is_kept, render.machine_of(vm).volumes):
        told = known.get(volume.name)
        if told is None:
            found.append(f"it is not known yet whether the volume {volume.name} can be snapshotted")
        elif not told.enabled:
            found.append(f"the volume {volume.name} cannot be snapshotted: {told.reason}")
    return found


# With one


def _from_snapshot(state: _State, snapshot: VirtualMachineSnapshot) -> Decision:
    content = state.world.content
    held = f"VirtualMachineSnapshotContent {snapshot.status.virtual_machine_snapshot_content_name}"
    if content is None:
        return state.goes_on(SNAPSHOT_IN_PROGRESS, f"waiting for {held}")
    try:
        saved = from_plain(content.spec.source.virtual_machine, VirtualMachine)
    except msgspec.ValidationError as error:
        return state.failed("SnapshotContentInvalid", f"{held} holds no VirtualMachine that can be read: {error}")
    backed = {each.volume_name for each in content.spec.volume_backups}
    lost = [each.name for each in filter(_is_kept, render.machine_of(saved).volumes) if each.name not in backed]
    if lost:
        return state.failed("SnapshotContentInvalid", f"{held} does not hold the volumes {', '.join(lost)}")
    if (refused := _refused(state, saved)) is not None:
        return refused
    name = render.restore_name(state.clone)
    begun = state.goes_on(RESTORE_IN_PROGRESS, f"waiting for VirtualMachineRestore {name}")
    notes = (
        Note("SnapshotReady", f"VirtualMachineSnapshot {_named(snapshot)} is ready"),
        Note("RestoreCreated", f"made VirtualMachineRestore {name} of it"),
    )
    return _changed(begun, restore_from=saved, notes=notes)


def _restoring(state: _State, restore: VirtualMachineRestore) -> Decision:
    name, target = _named(restore), render.target_name(state.clone)
    if not restore.status.complete:
        return _incomplete(state, restore)
    told = state.clone.status.phase == CREATING_TARGET
    ready = () if told else (Note("RestoreReady", f"VirtualMachineRestore {name} is complete"),)
    if state.world.target is None:
        return _changed(state.goes_on(CREATING_TARGET, f"waiting for VirtualMachine {target}"), notes=ready)
    done = state.status(SUCCEEDED, (names.FALSE, REASON_READY, ""), (names.TRUE, REASON_READY, ""))
    done = replace(done, target_name=target, creation_time=rfc3339(state.now))
    note = Note("TargetVMCreated", f"VirtualMachine {target} is there")
    return Decision(done, notes=(*ready, note), let_go=True, recheck_s=LOOK_AGAIN_S)


def _incomplete(state: _State, restore: VirtualMachineRestore) -> Decision:
    failure = get_condition(restore.status.conditions, names.CONDITION_FAILURE)
    if failure is not None and failure.status == names.TRUE:
        return state.failed("RestoreFailed", f"VirtualMachineRestore {_named(restore)} failed: {_text(failure)}")
    if is_terminating(restore):
        return state.failed("RestoreDeleted", f"VirtualMachineRestore {_named(restore)} is being deleted")
    if state.world.snapshot is None:
        return state.failed("SnapshotDeleted", f"VirtualMachineSnapshot {render.snapshot_name(state.clone)} is gone")
    trouble = get_condition(restore.status.conditions, PROGRESSING)
    if trouble is None or trouble.status != names.FALSE:
        return state.goes_on(RESTORE_IN_PROGRESS, f"waiting for VirtualMachineRestore {_named(restore)}")
    words = f"VirtualMachineRestore {_named(restore)} does not get on: {_text(trouble)}"
    left_s = GIVE_UP_S - _age_s(trouble, state.now)
    if left_s <= 0:
        return state.failed("RestoreFailed", words)
    return _changed(state.goes_on(RESTORE_IN_PROGRESS, words), recheck_s=min(left_s, LOOK_AGAIN_S))


def _text(condition: Condition) -> str:
    return condition.message or condition.reason


def _age_s(condition: Condition, now: datetime) -> float:
    try:
        return (now - parse_rfc3339(condition.last_transition_time or "")).total_seconds()
    except ValueError:
        return 0.0


# With a new VM


def claims_of(restore: VirtualMachineRestore | None, target: VirtualMachine | None) -> set[str]:
    """The claims of the new VM. Its restore knows them; its volumes do too."""
    restored = {each.persistent_volume_claim for each in (restore.status.restores if restore is not None else ())}
    volumes = render.machine_of(target).volumes if target is not None else []
    named = {each.persistent_volume_claim.claim_name for each in volumes if each.persistent_volume_claim is not None}
    named |= {each.data_volume.name for each in volumes if each.data_volume is not None}
    return restored | named


def _settled(state: _State) -> Decision:
    """What it was made from goes when the new VM does not need it any more."""
    clone, world = state.clone, state.world
    if world.target is None:
        return Decision(clone.status, delete_clone=True, let_go=True)
    if not clone.status.restore_name and not clone.status.snapshot_name:
        return Decision(clone.status, let_go=True)
    if any(claim.status.phase != "Bound" for claim in world.claims.values()):
        return Decision(clone.status, let_go=True, recheck_s=LOOK_AGAIN_S)
    status = replace(clone.status, snapshot_name=None, restore_name=None)
    note = Note("PVCBound", f"the claims of VirtualMachine {world.target.metadata.name} are bound")
    return Decision(status, notes=(note,), clean_up=True, let_go=True)


def _changed(
    decision: Decision,
    *,
    notes: tuple[Note, ...] = (),
    create_snapshot: bool = False,
    restore_from: VirtualMachine | None = None,
    recheck_s: float | None = None,
) -> Decision:
    return Decision(
        decision.status,
        notes=notes,
        create_snapshot=create_snapshot,
        restore_from=restore_from,
        recheck_s=decision.recheck_s if recheck_s is None else recheck_s,
    )


class _State:
    """The status that is being worked out."""

    def __init__(self, clone: VirtualMachineClone, world: World, now: datetime) -> None:
        self.clone, self.world, self.now = clone, world, now

    def status(
        self, phase: str, progressing: tuple[str, str, str], ready: tuple[str, str, str]
    ) -> VirtualMachineCloneStatus:
        before = self.clone.status
        conditions = [replace(each) for each in before.conditions]
        set_condition(conditions, PROGRESSING, *progressing, self.now)
        set_condition(conditions, READY, *ready, self.now)
        return replace(before, phase=phase, conditions=conditions)

    def goes_on(self, phase: str, words: str) -> Decision:
        """With what it is made from named in its status, so that nobody has to guess."""
        status = self.status(phase, (names.TRUE, REASON_PROCESSING, words), (names.FALSE, REASON_PROCESSING, words))
        status = replace(status, snapshot_name=render.snapshot_name(self.clone))
        if phase in (RESTORE_IN_PROGRESS, CREATING_TARGET):
            status = replace(status, restore_name=render.restore_name(self.clone))
        return Decision(status, recheck_s=LOOK_AGAIN_S)

    def pending(self, reason: str, words: str) -> Decision:
        """For something that others do."""
        status = self.status(
            self.clone.status.phase, (names.FALSE, REASON_PENDING, words), (names.FALSE, REASON_PENDING, words)
        )
        return Decision(status, notes=(Note(reason, words, names.EVENT_WARNING),), recheck_s=LOOK_AGAIN_S)

    def failed(self, reason: str, words: str) -> Decision:
        status = self.status(FAILED, (names.FALSE, REASON_FAILED, words), (names.FALSE, REASON_FAILED, words))
        return Decision(status, notes=(Note(reason, words, names.EVENT_WARNING),), clean_up=True)
