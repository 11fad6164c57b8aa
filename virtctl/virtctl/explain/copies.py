"""A snapshot of a VM, or a restore, in one sentence: what it waits for, what is wrong, what became of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from virt_core.apis import snapshot as words
from virt_core.apis.meta import Condition
from virt_core.apis.nodes import Event
from virt_core.apis.snapshot import VirtualMachineRestore, VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.workloadupdate import seconds
from virt_core.kube.conditions import get_condition
from virt_core.runtime.times import parse_rfc3339
from virtctl.explain.evidence import evidence
from virtctl.explain.facts import Facts
from virtctl.explain.render import Explanation
from virtctl.explain.words import Standing, duration


@dataclass(frozen=True)
class Copy:
    """All that is read of a snapshot or a restore."""

    now: datetime
    snapshot: VirtualMachineSnapshot | None = None
    content: VirtualMachineSnapshotContent | None = None
    restore: VirtualMachineRestore | None = None
    vm: VirtualMachine | None = None
    claims: Sequence[PersistentVolumeClaim] = ()
    events: list[Event] = field(default_factory=list)
    unread: tuple[str, ...] = ()


def explained(copy: Copy) -> Explanation:
    """Of the restore, if there is one, else of the snapshot."""
    if copy.restore is not None:
        kind, meta, stands = "VirtualMachineRestore", copy.restore.metadata, restore_standing(copy, copy.restore)
        phase = "Complete" if copy.restore.status.complete else ("Failed" if stands.failed else words.IN_PROGRESS)
        lines = [_claim_line(each) for each in copy.claims]
    else:
        assert copy.snapshot is not None
        kind, meta, stands = "VirtualMachineSnapshot", copy.snapshot.metadata, snapshot_standing(copy, copy.snapshot)
        phase = copy.snapshot.status.phase or "New"
        lines = _volume_lines(copy.content)
    facts = Facts(meta.namespace, meta.name, copy.now, events=copy.events, unread=copy.unread)
    quiet = stands.final and not stands.failed
    return Explanation(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        phase=phase,
        node="",
        standing=stands,
        steps=[],
        evidence=lines if quiet else [*lines, *evidence(facts, stands.sentence)],
    )


def snapshot_standing(copy: Copy, snapshot: VirtualMachineSnapshot) -> Standing:
    meta, status = snapshot.metadata, snapshot.status
    look = f"kubectl describe vmsnapshot {meta.name} -n {meta.namespace}"
    vm = snapshot.spec.source.name
    if meta.deletion_timestamp:
        return Standing("It is being deleted.", look)
    if status.phase == words.FAILED:
        why = status.error.message if status.error is not None else _reason(status.conditions, words.FAILURE)
        return Standing(f"It Failed: {str(why).rstrip('.')}. VM {vm} is free again.", look, final=True, failed=True)
    if status.phase == words.SUCCEEDED and status.ready_to_use:
        how = f" ({', '.join(status.indications)})" if status.indications else ""
        return Standing(f"VM {vm} is saved{how}, and can be restored.", _restore_hint(snapshot), final=True)
    if status.phase == words.SUCCEEDED:
        why = status.error.message if status.error is not None else "its volumes are not ready yet"
        failed = status.error is not None
        return Standing(f"VM {vm} was saved, but cannot be restored: {why}.", look, final=failed, failed=failed)
    return Standing(f"{_waits(copy, snapshot)}{_left(snapshot, copy.now)}", look)


def _restore_hint(snapshot: VirtualMachineSnapshot) -> str:
    meta = snapshot.metadata
    return f"kubectl get vmsnapshot {meta.name} -n {meta.namespace} -o yaml"


def _waits(copy: Copy, snapshot: VirtualMachineSnapshot) -> str:
    told, vm = _reason(snapshot.status.conditions, words.PROGRESSING), snapshot.spec.source.name
    if not told:
        return "virt-controller has not looked at it yet."
    if copy.vm is None:
        return f"There is no VM {vm} yet; it waits for one."
    error = copy.content.status.error if copy.content is not None else None
    if error is not None and error.message:
        return f"VM {vm} is held, and cannot be saved: {error.message.rstrip('.')}; it is tried again."
    if copy.content is None:
        return f"{told.rstrip('.')}."
    open_ = [
        each.volume_snapshot_name for each in copy.content.spec.volume_backups if not _is_taken(copy.content, each)
    ]
    if open_:
        return f"VM {vm} is held, and the cluster's storage has not taken VolumeSnapshot {', '.join(map(str, open_))}."
    return f"VM {vm} is held, and the guest is about to go on."


def _is_taken(content: VirtualMachineSnapshotContent, backup: words.VolumeBackup) -> bool:
    rows = {each.volume_snapshot_name: each for each in content.status.volume_snapshot_status}
    row = rows.get(backup.volume_snapshot_name or "")
    return row is not None and bool(row.creation_time)


def _left(snapshot: VirtualMachineSnapshot, now: datetime) -> str:
    made = snapshot.metadata.creation_timestamp
    given = snapshot.spec.failure_deadline
    limit = words.DEADLINE_S if given is None else seconds(given)
    if not limit or not made:
        return ""
    left = (parse_rfc3339(made) + timedelta(seconds=limit) - now).total_seconds()
    return f" It is given up in {duration(left)}."


def restore_standing(copy: Copy, restore: VirtualMachineRestore) -> Standing:
    meta, status, vm = restore.metadata, restore.status, restore.spec.target.name
    look = f"kubectl describe vmrestore {meta.name} -n {meta.namespace}"
    if meta.deletion_timestamp:
        return Standing("It is being deleted.", look)
    if status.complete:
        name = restore.spec.virtual_machine_snapshot_name
        return Standing(f"VM {vm} is as snapshot {name} has it.", f"virtctl start {vm} -n {meta.namespace}", final=True)
    if words.is_over(restore):
        why = _reason(status.conditions, words.FAILURE).rstrip(".")
        return Standing(f"It Failed: {why}. Nothing is restored any more by it: make a new one.", look, True, True)
    told = _reason(status.conditions, words.PROGRESSING).rstrip(".")
    if not told:
        return Standing("virt-controller has not looked at it yet.", look)
    unbound = [each.metadata.name for each in copy.claims if each.status.phase != "Bound"]
    if unbound and "PVC" in told:
        return Standing(f"{told}: {', '.join(unbound)}.", f"kubectl describe pvc {unbound[0]} -n {meta.namespace}")
    last = next((each.message for each in reversed(copy.events) if each.type == "Warning"), "")
    if told.startswith("Waiting for target") and last:
        return Standing(f"{told}: {last.rstrip('.')}.", f"virtctl stop {vm} -n {meta.namespace}")
    return Standing(f"{told}.", look)


def _reason(conditions: Sequence[Condition], type: str) -> str:
    found = get_condition(conditions, type)
    return found.reason if found is not None else ""


def _volume_lines(content: VirtualMachineSnapshotContent | None) -> list[str]:
    if content is None:
        return []
    rows = {each.volume_snapshot_name: each for each in content.status.volume_snapshot_status}
    found = []
    for backup in content.spec.volume_backups:
        row = rows.get(backup.volume_snapshot_name or "")
        state = "not made yet" if row is None else ("ready" if row.ready_to_use else "not ready")
        trouble = f"; {row.error.message}" if row is not None and row.error is not None else ""
        found.append(f"Volume {backup.volume_name}: VolumeSnapshot {backup.volume_snapshot_name} is {state}{trouble}")
    return found


def _claim_line(claim: PersistentVolumeClaim) -> str:
    return f"Claim {claim.metadata.name}: {claim.status.phase or 'new'}"
