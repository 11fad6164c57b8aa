"""A clone in one sentence, and what was done for it as rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from virt_core.apis import names
from virt_core.apis.clone import VirtualMachineClone
from virt_core.apis.nodes import Event
from virt_core.apis.snapshot import VirtualMachineRestore, VirtualMachineSnapshot
from virt_core.kube.client import KubeClient
from virt_core.kube.conditions import get_condition
from virt_core.kube.errors import Forbidden, NotFound
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.times import parse_rfc3339
from virtctl.explain.evidence import evidence
from virtctl.explain.facts import Facts, event_time
from virtctl.explain.gathering import events_of
from virtctl.explain.render import Explanation
from virtctl.explain.timeline import State, Step
from virtctl.explain.words import Standing, duration, logs, text_of

T = TypeVar("T", VirtualMachineSnapshot, VirtualMachineRestore)

SUCCEEDED, FAILED = "Succeeded", "Failed"
_KIND, _OWNER = "VirtualMachineClone", "virt-controller"
#: In which they happen; several may within the second that an Event's time has.
_ORDER = ("SnapshotCreated", "SnapshotReady", "RestoreCreated", "RestoreReady", "TargetVMCreated", "PVCBound")


@dataclass(frozen=True)
class CloneFacts(Facts):
    clone: VirtualMachineClone | None = None
    snapshot: VirtualMachineSnapshot | None = None
    restore: VirtualMachineRestore | None = None


def gather(client: KubeClient, namespace: str, name: str) -> CloneFacts:
    """Raises NotFound when there is no such clone."""
    clone = client.get(VirtualMachineClone, name, namespace)
    unread: list[str] = []
    snapshot = restore = None
    try:
        snapshot = _found(client, VirtualMachineSnapshot, clone.status.snapshot_name, namespace)
        restore = _found(client, VirtualMachineRestore, clone.status.restore_name, namespace)
    except Forbidden:
        unread.append("Snapshots and restores")
    about = [each.metadata for each in (clone, snapshot, restore) if each is not None]
    events = events_of(client, namespace, about, None, unread)
    now = SystemClock().now()
    return CloneFacts(
        namespace, name, now, events=events, unread=tuple(unread), clone=clone, snapshot=snapshot, restore=restore
    )


def _found(client: KubeClient, cls: type[T], name: str | None, namespace: str) -> T | None:
    try:
        return client.get(cls, name, namespace) if name else None
    except NotFound:
        return None


def standing_of(facts: CloneFacts) -> Standing:
    clone, where = facts.clone, f"-n {facts.namespace}"
    if clone is None:
        return Standing("There is no clone.", f"kubectl get vmclone {where}")
    told = get_condition(clone.status.conditions, "Progressing")
    words = text_of(told).rstrip(".")
    if clone.status.phase == FAILED:
        again = f"kubectl delete vmclone {facts.name} {where}"
        return Standing(f"It Failed: {words}.", again, final=True, failed=True)
    if clone.status.phase == SUCCEEDED:
        return _made(facts, clone)
    if told is None:
        return Standing("Nobody has looked at it yet.", logs(facts, _OWNER))
    since = _since(told.last_transition_time, facts.now)
    return Standing(f"It is {_state(told.reason)}: {words}{since}.{_trouble(facts)}", _next(facts))


def _state(reason: str) -> str:
    return "pending" if reason == "Pending" else "under way"


def _made(facts: CloneFacts, clone: VirtualMachineClone) -> Standing:
    target, where = clone.status.target_name or "", f"-n {facts.namespace}"
    source = f"{clone.spec.source.kind} {clone.spec.source.name}"
    sentence = f"VirtualMachine {target} was made of {source}."
    if clone.status.restore_name:
        sentence += " Not all of its claims are bound yet: what it was made from is kept until they are."
    return Standing(sentence, f"virtctl start {target} {where}", final=True)


def _since(moment: str | None, now: datetime) -> str:
    return f" and has waited {duration((now - parse_rfc3339(moment)).total_seconds())}" if moment else ""


def _trouble(facts: CloneFacts) -> str:
    """What the snapshot says of itself; a restore's trouble is in the clone's own words."""
    error = facts.snapshot.status.error if facts.snapshot is not None else None
    said = error.message if error is not None and facts.restore is None else ""
    return f" The snapshot says: {said.rstrip('.')}." if said else ""


def _next(facts: CloneFacts) -> str:
    where = f"-n {facts.namespace}"
    if facts.restore is not None:
        return f"kubectl describe vmrestore {facts.restore.metadata.name} {where}"
    if facts.snapshot is not None:
        return f"kubectl describe vmsnapshot {facts.snapshot.metadata.name} {where}"
    return f"kubectl get vmclone {facts.name} {where} -w"


def explanation(facts: CloneFacts) -> Explanation:
    stands, clone = standing_of(facts), facts.clone
    return Explanation(
        kind=_KIND,
        namespace=facts.namespace,
        name=facts.name,
        phase=(clone.status.phase if clone is not None else "") or "New",
        node="",
        standing=stands,
        steps=steps_of(facts),
        evidence=[] if stands.final and not stands.failed else evidence(facts, stands.sentence),
    )


def steps_of(facts: CloneFacts) -> list[Step]:
    """What virt-controller has told of its work; Events are kept for an hour."""
    told = [each for each in facts.events if each.type == names.EVENT_NORMAL and each.involved_object.kind == _KIND]
    made = facts.clone.metadata.creation_timestamp if facts.clone is not None else None
    start = before = parse_rfc3339(made) if made else facts.now
    rows: list[Step] = []
    for event in sorted(filter(event_time, told), key=_when):
        rows.append(_row(event, before, start))
        before = parse_rfc3339(event_time(event))
    return rows


def _when(event: Event) -> tuple[str, int]:
    return event_time(event), _ORDER.index(event.reason) if event.reason in _ORDER else len(_ORDER)


def _row(event: Event, before: datetime, start: datetime) -> Step:
    moment = parse_rfc3339(event_time(event))
    took, since = (moment - before).total_seconds(), (moment - start).total_seconds()
    return Step(
        name=event.reason, owner=_OWNER, title=event.message, state=State.DONE, time=moment, took_s=took, at_s=since
    )
