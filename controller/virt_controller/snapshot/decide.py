"""What becomes of a snapshot: whether its VM is held or let go, its content, its phase, its conditions. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from virt_controller.snapshot import source
from virt_controller.snapshot.memory import WENT_ON
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.facts import is_terminating
from virt_core.apis.snapshot import Error, VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virt_core.apis.snapshot import VirtualMachineSnapshotStatus as Status
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.workloadupdate import seconds
from virt_core.kube.conditions import set_condition
from virt_core.runtime.times import parse_rfc3339, rfc3339

#: What others do is looked at again then, lest a change was missed.
RETRY_S = 5.0

_LOCKED, _NOT_READY, _READY = "Source locked and operation in progress", "Not ready", "Ready"
_DONE, _FAILED, _NO_SOURCE, _IN_ERROR = (
    "Operation complete",
    "Operation failed",
    "Source does not exist",
    "In error state",
)
_DELETING, _TOO_LATE = "VM snapshot is deleting", "snapshot deadline exceeded"


@dataclass(frozen=True, slots=True)
class World:
    """What there is around a snapshot."""

    vm: VirtualMachine | None = None
    vmi: source.Vmi = None
    content: VirtualMachineSnapshotContent | None = None
    #: Why the VM cannot be held still now.
    blocked: str = ""
    #: Why there will never be anything to restore from.
    hopeless: str = ""
    #: The memory is asked for, and is not saved yet.
    memory_missing: bool = False
    #: The guest no longer stands still for its memory's sake.
    went_on: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    status: Status
    lock: bool = False
    unlock: bool = False
    create_content: bool = False
    #: Let the guest stand still and its memory go into a claim.
    save_memory: bool = False
    delete_content: bool = False
    #: Nothing is left to be done: the snapshot may go.
    release: bool = False
    recheck_s: float | None = None


def deadline_s(snapshot: VirtualMachineSnapshot) -> float:
    """0: it may take as long as it likes."""
    text = snapshot.spec.failure_deadline
    try:
        return words.DEADLINE_S if text is None else seconds(text)
    except ValueError:
        return words.DEADLINE_S  # Stored by somebody who was not asked at the door.


def time_left(snapshot: VirtualMachineSnapshot, now: datetime) -> float | None:
    """None: no end."""
    limit, made = deadline_s(snapshot), snapshot.metadata.creation_timestamp
    if not limit or not made:
        return None
    return (parse_rfc3339(made) + timedelta(seconds=limit) - now).total_seconds()


def decide(snapshot: VirtualMachineSnapshot, world: World, now: datetime) -> Decision:
    if is_terminating(snapshot):
        return _ending(snapshot, world, now)
    if snapshot.status.phase == words.FAILED:
        return _over(snapshot.status, snapshot, world, delete_content=world.content is not None)
    content = world.content
    taken = content is not None and bool(content.status.creation_time) and snapshot.status.phase != words.SUCCEEDED
    if taken and world.went_on:
        return _failed(snapshot, world, now, WENT_ON)
    if content is not None and content.status.creation_time and not is_terminating(content) and not world.hopeless:
        return _over(_taken(snapshot, content, now), snapshot, world)
    if snapshot.status.phase == words.SUCCEEDED:
        return _over(_lost(snapshot, now, world.hopeless), snapshot, world)
    left = time_left(snapshot, now)
    if left is not None and left <= 0:
        return _failed(snapshot, world, now, _TOO_LATE)
    if world.hopeless:
        return _failed(snapshot, world, now, world.hopeless)
    return _under_way(snapshot, world, now, left)


def _under_way(snapshot: VirtualMachineSnapshot, world: World, now: datetime, left: float | None) -> Decision:
    vm, content = world.vm, world.content
    recheck = RETRY_S if left is None else max(min(RETRY_S, left), 0.05)
    if vm is None:
        return Decision(_progress(snapshot, now, names.FALSE, _NO_SOURCE), recheck_s=recheck)
    if not source.holds(vm, snapshot) and world.blocked:
        told = f"Source not locked: {world.blocked}"
        return Decision(_progress(snapshot, now, names.FALSE, told), recheck_s=recheck)
    status = replace(_progress(snapshot, now, names.TRUE, _LOCKED), source_uid=vm.metadata.uid)
    lock = not source.is_locked(vm, snapshot)
    if content is None and world.memory_missing:
        return Decision(status, lock=lock, save_memory=not lock, recheck_s=recheck)
    if content is None:
        return Decision(status, lock=lock, create_content=True, recheck_s=recheck)
    if content.status.error is not None:
        status = replace(_progress(snapshot, now, names.FALSE, _IN_ERROR), source_uid=vm.metadata.uid)
    status = _with_content(status, content)
    memory = words.ANNOTATION_MACHINE_STATE in content.metadata.annotations
    found = source.indications(world.vmi, partial=source.is_partial(content), late=False, memory=memory)
    status = replace(status, source_indications=found, indications=[each.indication for each in found])
    return Decision(status, lock=lock, recheck_s=recheck)


def _ending(snapshot: VirtualMachineSnapshot, world: World, now: datetime) -> Decision:
    status = replace(_progress(snapshot, now, names.FALSE, _DELETING), phase=words.DELETING)
    content = world.content
    kept = content is not None and snapshot.spec.deletion_policy == words.RETAIN and content.status.ready_to_use
    if content is not None and not kept:
        return Decision(status, delete_content=not is_terminating(content), recheck_s=RETRY_S)
    unlock = source.holds(world.vm, snapshot)
    return Decision(status, unlock=unlock, release=True)


def _over(status: Status, snapshot: VirtualMachineSnapshot, world: World, *, delete_content: bool = False) -> Decision:
    unlock = source.holds(world.vm, snapshot)
    return Decision(status, unlock=unlock, delete_content=delete_content)


def _taken(snapshot: VirtualMachineSnapshot, content: VirtualMachineSnapshotContent, now: datetime) -> Status:
    ready = bool(content.status.ready_to_use)
    status = _conditions(
        snapshot,
        now,
        words.SUCCEEDED,
        (names.FALSE, _DONE),
        (names.TRUE, _READY) if ready else (names.FALSE, _NOT_READY),
    )
    status = _with_content(status, content)
    if is_late(content) and words.QUIESCE_TIMEOUT not in status.indications:
        found = source.with_late(status.source_indications)
        status = replace(status, source_indications=found, indications=[each.indication for each in found])
    if not status.source_uid:
        uid = source.kept_vm(content).metadata.uid
        status = replace(status, source_uid=uid or None)
    return status


def is_late(content: VirtualMachineSnapshotContent) -> bool:
    """The guest's file systems went on before the last volume was saved."""
    until, created = content.metadata.annotations.get(words.ANNOTATION_FROZEN_UNTIL), content.status.creation_time
    return bool(until and created) and parse_rfc3339(until or "") < parse_rfc3339(created or "")


def _lost(snapshot: VirtualMachineSnapshot, now: datetime, why: str) -> Status:
    name = snapshot.status.virtual_machine_snapshot_content_name or words.content_name(snapshot)
    known = snapshot.status.error
    text = why or f"VirtualMachineSnapshotContent {name} is gone"
    error = known if known is not None and known.message == text else Error(time=rfc3339(now), message=text)
    status = _conditions(snapshot, now, words.SUCCEEDED, (names.FALSE, _DONE), (names.FALSE, _NOT_READY))
    return replace(status, ready_to_use=False, error=error)


def _failed(snapshot: VirtualMachineSnapshot, world: World, now: datetime, why: str) -> Decision:
    status = _conditions(snapshot, now, words.FAILED, (names.FALSE, _FAILED), (names.FALSE, _FAILED))
    set_condition(status.conditions, words.FAILURE, names.TRUE, why, why, now)
    error = Error(time=rfc3339(now), message=_why(snapshot, world, why))
    status = replace(status, creation_time=None, ready_to_use=False, error=error)
    return _over(status, snapshot, world, delete_content=world.content is not None)


def _why(snapshot: VirtualMachineSnapshot, world: World, why: str) -> str:
    """What it waited for when the time was over."""
    waited = next((c.reason for c in snapshot.status.conditions if c.type == words.PROGRESSING), "")
    error = world.content.status.error if world.content is not None else None
    told = error.message if error is not None and error.message else waited
    return f"{why}: {told}" if why == _TOO_LATE and told and told != _LOCKED else why


def _with_content(status: Status, content: VirtualMachineSnapshotContent) -> Status:
    return replace(
        status,
        virtual_machine_snapshot_content_name=content.metadata.name,
        creation_time=content.status.creation_time,
        ready_to_use=bool(content.status.ready_to_use),
        error=content.status.error,
        snapshot_volumes=source.lists_of(content),
    )


def _progress(snapshot: VirtualMachineSnapshot, now: datetime, progressing: str, reason: str) -> Status:
    status = _conditions(snapshot, now, words.IN_PROGRESS, (progressing, reason), (names.FALSE, _NOT_READY))
    return replace(status, ready_to_use=bool(status.ready_to_use))


def _conditions(
    snapshot: VirtualMachineSnapshot, now: datetime, phase: str, progressing: tuple[str, str], ready: tuple[str, str]
) -> Status:
    conditions = [replace(each) for each in snapshot.status.conditions]
    set_condition(conditions, words.PROGRESSING, progressing[0], progressing[1], "", now)
    set_condition(conditions, words.READY, ready[0], ready[1], "", now)
    return replace(snapshot.status, phase=phase, conditions=conditions)
