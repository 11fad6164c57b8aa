"""The handoffs of a start as rows: done ones in the order of their times, then those still to come."""

from __future__ import annotations

import enum
from datetime import datetime

import msgspec

from virt_core.apis.handoffs import DOMAIN_DEFINED, HANDOFFS, LAUNCHER_READY, NETWORK_READY, HandoffKind, of_start
from virt_core.apis.names import FINAL_PHASES, PHASE_RUNNING
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import Handoff
from virt_core.runtime.times import parse_rfc3339

_KINDS = {kind.name: kind for kind in HANDOFFS}


class State(enum.StrEnum):
    DONE = "done"
    WAITING = "waiting"
    OVERDUE = "overdue"
    LATER = "later"
    SKIPPED = "skipped"
    NEVER = "never"


class Step(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    name: str
    owner: str
    title: str
    state: State
    time: datetime | None = None
    #: Seconds since the step before; for the one that is waited for, the wait until now.
    took_s: float | None = None
    #: Seconds since the first step.
    at_s: float | None = None
    limit_s: float | None = None
    message: str = ""


def timeline(vmi: VirtualMachineInstance, now: datetime) -> list[Step]:
    done = sorted(_done(vmi), key=lambda pair: pair[1])
    start = done[0][1] if done else begin(vmi)
    steps: list[Step] = []
    before = start
    for handoff, moment in done:
        steps.append(_done_step(handoff, moment, before, start))
        before = moment
    return steps + _missing(vmi, {handoff.name for handoff, _ in done}, before, now)


def begin(vmi: VirtualMachineInstance) -> datetime | None:
    created = vmi.metadata.creation_timestamp
    return parse_rfc3339(created) if created else None


def waiting_step(steps: list[Step]) -> Step | None:
    """The one step that everything waits for now."""
    return next((step for step in steps if step.state in (State.WAITING, State.OVERDUE)), None)


def kind_of(step: Step) -> HandoffKind:
    return _KINDS[step.name]


def _done(vmi: VirtualMachineInstance) -> list[tuple[Handoff, datetime]]:
    return [(handoff, parse_rfc3339(handoff.time)) for handoff in of_start(vmi.status.handoffs)]


def _done_step(handoff: Handoff, moment: datetime, before: datetime | None, start: datetime | None) -> Step:
    kind = _KINDS.get(handoff.name)
    return Step(
        name=handoff.name,
        owner=handoff.owner or (kind.owner if kind else ""),
        title=kind.title if kind else "",
        state=State.DONE,
        time=moment,
        took_s=(moment - before).total_seconds() if before else None,
        at_s=(moment - start).total_seconds() if start else None,
        limit_s=kind.deadline_s if kind else None,
        message=handoff.message,
    )


def _missing(vmi: VirtualMachineInstance, done: set[str], since: datetime | None, now: datetime) -> list[Step]:
    """Of the steps that are not done, the first is waited for, unless the machine is past them."""
    steps: list[Step] = []
    waits = vmi.status.phase != PHASE_RUNNING and vmi.status.phase not in FINAL_PHASES
    for kind in HANDOFFS:
        if kind.name in done:
            continue
        step = Step(name=kind.name, owner=kind.owner, title=kind.title, state=State.LATER, limit_s=kind.deadline_s)
        if not waits:
            step.state = State.SKIPPED if vmi.status.phase == PHASE_RUNNING else State.NEVER
        elif _passed(kind, done):
            step.state = State.SKIPPED
        elif waiting_step(steps) is None:
            step.took_s = (now - since).total_seconds() if since else None
            step.state = State.OVERDUE if (step.took_s or 0.0) > kind.deadline_s else State.WAITING
        steps.append(step)
    return steps


def _passed(kind: HandoffKind, done: set[str]) -> bool:
    """A later step is done. Network and launcher run side by side, so only what needs both proves anything for them."""
    order = [other.name for other in HANDOFFS]
    beside = kind in (NETWORK_READY, LAUNCHER_READY)
    proof = order.index(DOMAIN_DEFINED.name) if beside else order.index(kind.name) + 1
    return any(name in done for name in order[proof:])
