"""Small steps from one VMI status to the next, shared by all who write one. Pure: what comes in stays as it is."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.handoffs import HandoffKind
from virt_core.apis.meta import Condition
from virt_core.apis.vmistatus import (
    Handoff,
    VirtualMachineInstancePhaseTransitionTimestamp,
    VirtualMachineInstanceStatus,
)
from virt_core.kube.conditions import set_condition
from virt_core.runtime.times import rfc3339, rfc3339_micro

Status = VirtualMachineInstanceStatus


def with_phase(status: Status, phase: str, now: datetime) -> Status:
    """Each phase gets its time once, however often it is set."""
    stamps = status.phase_transition_timestamps
    if all(stamp.phase != phase for stamp in stamps):
        new = VirtualMachineInstancePhaseTransitionTimestamp(phase=phase, phase_transition_timestamp=rfc3339(now))
        stamps = [*stamps, new]
    return replace(status, phase=phase, phase_transition_timestamps=stamps)


def with_handoff(
    status: Status, kind: HandoffKind, moment: datetime, message: str = "", *, pod_uid: str = ""
) -> Status:
    """The first time counts: a handoff that was repeated after a restart already happened.

    A move has handoffs of its own, those of the Pod that the guest moves to.
    """
    if any((handoff.name, handoff.pod_uid) == (kind.name, pod_uid) for handoff in status.handoffs):
        return status
    stamp = rfc3339_micro(moment)
    handoff = Handoff(name=kind.name, owner=kind.owner, time=stamp, message=message, pod_uid=pod_uid)
    return replace(status, handoffs=[*status.handoffs, handoff])


def with_condition(
    status: Status, type: str, value: str, reason: str = "", message: str = "", *, now: datetime
) -> Status:
    conditions: list[Condition] = [replace(condition) for condition in status.conditions]
    if not set_condition(conditions, type, value, reason, message, now):
        return status
    return replace(status, conditions=conditions)


def without_condition(status: Status, *types: str) -> Status:
    kept = [condition for condition in status.conditions if condition.type not in types]
    return status if len(kept) == len(status.conditions) else replace(status, conditions=kept)


def with_failure(status: Status, reason: str, message: str, now: datetime) -> Status:
    """The VMI is over: phase, one word and one sentence, in the places where people and `virtctl explain` look."""
    status = replace(with_phase(status, names.PHASE_FAILED, now), reason=reason)
    status = with_condition(status, names.CONDITION_SYNCHRONIZED, names.FALSE, reason, message, now=now)
    return with_not_ready(status, now)


def with_not_ready(status: Status, now: datetime, message: str = "the guest has ended") -> Status:
    return with_condition(status, names.CONDITION_READY, names.FALSE, names.REASON_GUEST_NOT_RUNNING, message, now=now)
