"""Wait for a phase, a condition or the end of an object: what has come, what cannot come any more, how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from grpc import StatusCode

from virt_api.automation.failures import Failure, invalid
from virt_api.automation.objects import VMI, Target, View, view
from virt_core.apis import names
from virt_core.apis.handoffs import HANDOFFS, of_start
from virt_core.apis.meta import Condition
from virt_core.rpc.status import failed_precondition
from virt_protos.automation.v1 import automation_pb2 as pb

T = TypeVar("T")
Events = Callable[[], AsyncGenerator[pb.WatchEvent, None]]

DEFAULT_TIMEOUT_S = 300.0
TELL_S = 10.0
#: So much before the caller's own deadline, so that the answer still says how far it is.
_EARLIER_S = 0.25
_ABILITIES = (names.CONDITION_LIVE_MIGRATABLE, names.CONDITION_STORAGE_LIVE_MIGRATABLE)
_ON_THE_WAY = ("", names.PHASE_PENDING, names.PHASE_SCHEDULING, names.PHASE_SCHEDULED)


@dataclass(frozen=True, slots=True)
class Goal:
    """Exactly one of the three."""

    phases: tuple[str, ...] = ()
    condition: str = ""
    gone: bool = False

    def __str__(self) -> str:
        if self.gone:
            return "gone"
        return " or ".join(self.phases) or f"condition {self.condition}"

    def met(self, seen: View | None) -> bool:
        if seen is None:
            return self.gone
        return seen.phase in self.phases or bool(self.condition and seen.has(self.condition))


def goal_of(request: pb.WaitRequest) -> Goal:
    if request.HasField("phases") and all(request.phases.names) and request.phases.names:
        return Goal(phases=tuple(request.phases.names))
    if request.condition:
        return Goal(condition=request.condition)
    if request.gone:
        return Goal(gone=True)
    raise invalid("until: give phases with at least one name, a condition, or gone")


def hopeless(goal: Goal, target: Target, seen: View | None, before: View | None) -> str:
    """Why the goal cannot come any more, in one sentence. A VirtualMachine makes new instances; nobody else does."""
    last = seen or before
    if goal.gone or target.resource is not VMI or last is None or _owned(last):
        return ""
    if seen is None:
        return f"{target} was deleted before it was {goal}"
    if seen.phase in names.FINAL_PHASES:
        return f"{target} ended before it was {goal}: {standing(target, seen)}"
    return ""


def _holds_up(condition: Condition) -> bool:
    """What a machine cannot do later does not keep it from its goal."""
    return condition.status == names.FALSE and condition.type not in _ABILITIES


def standing(target: Target, seen: View | None) -> str:
    """How far it is, for people."""
    if seen is None:
        return f"there is no {target}"
    parts = [seen.phase or "just created"]
    if seen.metadata.deletion_timestamp:
        parts.append("being deleted")
    if seen.status.reason:
        parts.append(seen.status.reason)
    parts += [each.message for each in seen.status.conditions if _holds_up(each) and each.message]
    if target.resource is VMI and seen.phase in _ON_THE_WAY:
        done = {each.name for each in of_start(seen.status.handoffs)}
        parts += [f"waiting for {kind.waiting_for}" for kind in HANDOFFS if kind.name not in done][:1]
    return ", ".join(dict.fromkeys(parts))


async def wait(events: Events, target: Target, goal: Goal, within_s: float) -> AsyncGenerator[pb.WaitProgress, None]:
    """Tells of each change and every ten seconds. Raises Failure, ApiError."""
    loop = asyncio.get_running_loop()
    started, last = loop.time(), "nothing is known about it yet"
    before: View | None = None
    try:
        async with aclosing(_states(events, target, max(within_s - _EARLIER_S, 0.05))) as states:
            async for seen, obj in states:
                last, done = standing(target, seen), goal.met(seen)
                elapsed = int((loop.time() - started) * 1000)
                yield pb.WaitProgress(done=done, message=last, elapsed_ms=elapsed, object=obj)
                if done:
                    return
                if why := hopeless(goal, target, seen, before):
                    raise failed_precondition(why)
                before = seen or before
    except TimeoutError:
        message = f"{target} is not {goal} after {within_s:.0f} s: {last}"
        raise Failure(StatusCode.DEADLINE_EXCEEDED, message) from None


async def _states(
    events: Events, target: Target, within_s: float
) -> AsyncGenerator[tuple[View | None, pb.Object | None], None]:
    """The object after each change of it, None while there is none; the same again when nothing happens for a while.

    What is there at the start comes before the first bookmark, so nothing is known until then. Raises TimeoutError.
    """
    current: tuple[View | None, pb.Object | None] = (None, None)
    synced = False
    async with aclosing(_ticking(events(), TELL_S, within_s)) as source:
        async for event in source:
            if event is None:
                yield current
                continue
            listed = not synced and event.type == pb.WatchEvent.TYPE_BOOKMARK
            synced = synced or listed
            changed = event.HasField("object") and event.object.name == target.name
            if changed:
                gone = event.type == pb.WatchEvent.TYPE_DELETED
                current = (None, None) if gone else (view(event.object.json), event.object)
            if listed or (synced and changed):
                yield current


async def _ticking(source: AsyncGenerator[T, None], every_s: float, within_s: float) -> AsyncGenerator[T | None, None]:
    """What comes from `source`, and None whenever nothing came for a while; TimeoutError at the end.

    No `asyncio.timeout` around a `yield`: it would hit whoever consumes us.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    pending: asyncio.Task[T] | None = None
    try:
        while (left := deadline - loop.time()) > 0:
            pending = pending or asyncio.ensure_future(_next(source))
            done, _ = await asyncio.wait({pending}, timeout=min(every_s, left))
            if not done and left > every_s:
                yield None
            if not done:
                continue
            ready, pending = pending, None
            yield ready.result()
        raise TimeoutError
    except StopAsyncIteration:
        return
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
        await source.aclose()


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)


def _owned(seen: View) -> bool:
    return any(owner.controller for owner in seen.metadata.owner_references)
