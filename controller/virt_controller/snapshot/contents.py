"""What becomes of a snapshot's content: the guest is frozen, its volumes are saved, the guest goes on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from virt_controller.snapshot import source
from virt_controller.snapshot.decide import RETRY_S, deadline_s
from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.facts import is_terminating
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.registry import owner_reference
from virt_core.apis.snapshot import (
    Error,
    SnapshotVolumeStatus,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
    VolumeBackup,
)
from virt_core.apis.snapshot import VirtualMachineSnapshotContentStatus as Status
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.volumesnapshots import VolumeSnapshot, VolumeSnapshotSource, VolumeSnapshotSpec
from virt_core.kube.conditions import is_true
from virt_core.runtime.times import parse_rfc3339, rfc3339

#: What virt-api lets a guest be frozen for. No freeze is without an end: who froze it may be gone.
LONGEST_FREEZE_S, SHORTEST_FREEZE_S = 3600.0, 1.0


@dataclass(frozen=True, slots=True)
class World:
    """What there is around a content."""

    snapshot: VirtualMachineSnapshot | None = None
    vm: VirtualMachine | None = None
    vmi: source.Vmi = None
    #: By name; those that exist.
    saved: Mapping[str, VolumeSnapshot] = field(default_factory=dict)
    #: By the name of the volume: why it cannot be saved now.
    trouble: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    status: Status
    #: Freeze the guest for so many seconds, before anything is created.
    freeze_s: float | None = None
    create: tuple[VolumeBackup, ...] = ()
    #: All is saved: let the guest go on, and only then write down that it was taken.
    thaw: bool = False
    #: VolumeSnapshots that were there, and are gone.
    missing: tuple[str, ...] = ()
    recheck_s: float | None = None


def decide(content: VirtualMachineSnapshotContent, world: World, now: datetime) -> Decision:
    if content.status.creation_time:
        return _kept(content, world, now)
    snapshot = world.snapshot
    if snapshot is None or is_terminating(snapshot) or snapshot.status.phase == words.FAILED:
        return Decision(content.status)
    if not source.is_locked(world.vm, snapshot):
        return Decision(replace(content.status, ready_to_use=False), recheck_s=RETRY_S)
    absent = tuple(each for each in _backups(content) if each.volume_snapshot_name not in world.saved)
    if absent:
        return _begin(content, snapshot, world, absent, now)
    status = _status(content, world, now)
    if not all(each.creation_time for each in status.volume_snapshot_status):
        return Decision(replace(status, ready_to_use=False), recheck_s=RETRY_S)
    done = replace(status, creation_time=rfc3339(now), ready_to_use=_all_ready(status))
    return Decision(done, thaw=is_frozen(content, world, now), recheck_s=None if done.ready_to_use else RETRY_S)


def _begin(
    content: VirtualMachineSnapshotContent,
    snapshot: VirtualMachineSnapshot,
    world: World,
    absent: tuple[VolumeBackup, ...],
    now: datetime,
) -> Decision:
    status = replace(_status(content, world, now), ready_to_use=False)
    without = [f"{each.volume_name}: {world.trouble[each.volume_name]}" for each in absent
               if each.volume_name in world.trouble]  # fmt: skip
    if without:
        return Decision(in_error(status, "; ".join(without), now), recheck_s=RETRY_S)
    freeze = freeze_s(snapshot) if can_freeze(world) and not _was_frozen(content) else None
    return Decision(replace(status, error=None), freeze_s=freeze, create=absent, recheck_s=RETRY_S)


def freeze_s(snapshot: VirtualMachineSnapshot) -> float:
    """As long as the snapshot may take."""
    wanted = deadline_s(snapshot) or words.DEADLINE_S
    return min(max(wanted, SHORTEST_FREEZE_S), LONGEST_FREEZE_S)


def can_freeze(world: World) -> bool:
    vmi = world.vmi
    if vmi is None or vmi.status.phase != names.PHASE_RUNNING:
        return False
    if is_true(vmi.status.conditions, names.CONDITION_PAUSED):
        return False
    return is_true(vmi.status.conditions, names.CONDITION_AGENT_CONNECTED)


def _was_frozen(content: VirtualMachineSnapshotContent) -> bool:
    return words.ANNOTATION_FROZEN_UNTIL in content.metadata.annotations


def is_frozen(content: VirtualMachineSnapshotContent, world: World, now: datetime) -> bool:
    """Whether the guest stands still because of us, as far as we know."""
    until = content.metadata.annotations.get(words.ANNOTATION_FROZEN_UNTIL)
    runs = world.vmi is not None and world.vmi.status.phase == names.PHASE_RUNNING
    return bool(until) and runs and parse_rfc3339(until or "") > now


def is_left_frozen(content: VirtualMachineSnapshotContent, world: World, now: datetime) -> bool:
    """Whether a snapshot that was given up has left the guest so; it may have gone on by itself just now."""
    if content.status.creation_time or not _was_frozen(content) or world.vmi is None:
        return False
    return is_frozen(content, world, now) or bool(world.vmi.status.fs_freeze_status)


def in_error(status: Status, text: str, now: datetime) -> Status:
    if status.error is not None and status.error.message == text:
        return replace(status, ready_to_use=False)
    return replace(status, ready_to_use=False, error=Error(time=rfc3339(now), message=text))


def _kept(content: VirtualMachineSnapshotContent, world: World, now: datetime) -> Decision:
    missing = tuple(
        str(each.volume_snapshot_name) for each in _backups(content) if each.volume_snapshot_name not in world.saved
    )
    if missing:
        text = f"VolumeSnapshots ({', '.join(missing)}) missing"
        return Decision(in_error(content.status, text, now), missing=missing)
    status = _status(content, world, now)
    return Decision(replace(status, ready_to_use=_all_ready(status)))


def _backups(content: VirtualMachineSnapshotContent) -> list[VolumeBackup]:
    return [each for each in content.spec.volume_backups if each.volume_snapshot_name]


def _all_ready(status: Status) -> bool:
    return all(each.ready_to_use for each in status.volume_snapshot_status)


def _status(content: VirtualMachineSnapshotContent, world: World, now: datetime) -> Status:
    """With what is told of each volume; the first that is in trouble speaks for all."""
    rows = [_row(name, world.saved[name]) for each in _backups(content)
            if (name := str(each.volume_snapshot_name)) in world.saved]  # fmt: skip
    status = replace(content.status, volume_snapshot_status=rows)
    for row in rows:
        if row.error is not None:
            return in_error(status, f"VolumeSnapshot {row.volume_snapshot_name}: {row.error.message}", now)
    return replace(status, error=None)


def _row(name: str, saved: VolumeSnapshot) -> SnapshotVolumeStatus:
    """What goes wrong with one that is ready does not count."""
    told, error = saved.status, saved.status.error
    wrong = error is not None and not told.ready_to_use
    return SnapshotVolumeStatus(
        volume_snapshot_name=name,
        creation_time=told.creation_time,
        ready_to_use=told.ready_to_use,
        error=Error(time=error.time, message=error.message) if wrong and error is not None else None,
    )


def volume_snapshot(
    content: VirtualMachineSnapshotContent, backup: VolumeBackup, snapshot_class: str
) -> VolumeSnapshot:
    vm = (content.spec.source.virtual_machine or {}).get("metadata", {})
    labels = {
        words.LABEL_SOURCE_NAME: names.vmi_id(str(vm.get("name", ""))),
        words.LABEL_SOURCE_NAMESPACE: content.metadata.namespace,
    }
    return VolumeSnapshot(
        metadata=ObjectMeta(
            name=backup.volume_snapshot_name or "",
            namespace=content.metadata.namespace,
            labels=labels,
            owner_references=[owner_reference(content)],
        ),
        spec=VolumeSnapshotSpec(
            source=VolumeSnapshotSource(
                persistent_volume_claim_name=backup.persistent_volume_claim["metadata"]["name"]
            ),
            volume_snapshot_class_name=snapshot_class,
        ),
    )
