"""What has come, what cannot come any more, and how far it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from grpc import StatusCode

from virt_api.automation import waiting
from virt_api.automation.objects import VM, VMI, Target, View, to_object, view
from virt_api.automation.waiting import Goal, goal_of, hopeless, standing, wait
from virt_core.rpc.status import RpcFailure
from virt_protos.automation.v1 import automation_pb2 as pb

TARGET = Target(VMI, "default", "x")
RUNNING = Goal(phases=("Running",))
OWNER = [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "x", "uid": "u", "controller": True}]


def document(phase: str, owners: Any = (), **status: Any) -> bytes:
    meta = {"name": "x", "namespace": "default", "ownerReferences": list(owners)}
    return json.dumps({"metadata": meta, "status": {"phase": phase, **status}}).encode()


def seen(phase: str, owners: Any = (), **status: Any) -> View:
    return view(document(phase, owners, **status))


def test_goals() -> None:
    assert RUNNING.met(seen("Running"))
    assert not RUNNING.met(seen("Pending"))
    assert not RUNNING.met(None)
    assert Goal(gone=True).met(None)
    assert not Goal(gone=True).met(seen("Running"))
    ready = seen("Running", conditions=[{"type": "Ready", "status": "True"}])
    assert Goal(condition="Ready").met(ready)
    assert not Goal(condition="Paused").met(ready)


@pytest.mark.parametrize(
    "request_", [pb.WaitRequest(), pb.WaitRequest(phases=pb.Phases()), pb.WaitRequest(phases=pb.Phases(names=[""]))]
)
def test_a_wait_without_a_goal(request_: pb.WaitRequest) -> None:
    with pytest.raises(RpcFailure, match="until"):
        goal_of(request_)


def test_an_instance_that_ended_does_not_run_again() -> None:
    assert "ended before" in hopeless(RUNNING, TARGET, seen("Failed"), None)
    assert "was deleted" in hopeless(RUNNING, TARGET, None, seen("Running"))


def test_what_may_still_come() -> None:
    assert not hopeless(RUNNING, TARGET, None, None)
    assert not hopeless(RUNNING, TARGET, seen("Scheduled"), None)
    assert not hopeless(RUNNING, TARGET, seen("Failed", OWNER), None)
    assert not hopeless(RUNNING, TARGET, None, seen("Failed", OWNER))
    assert not hopeless(Goal(gone=True), TARGET, seen("Failed"), None)
    assert not hopeless(RUNNING, Target(VM, "default", "x"), seen("Failed"), None)


def test_the_sentence_names_what_is_missing() -> None:
    handoffs = [{"name": "accepted", "owner": "virt-api", "time": "2026-01-01T00:00:00Z"}]
    assert standing(TARGET, seen("Pending", handoffs=handoffs)).endswith("virt-controller to create the launcher Pod")
    failed = seen("Failed", reason="GuestCrashed", conditions=[{"type": "Ready", "status": "False", "message": "bang"}])
    assert standing(TARGET, failed) == "Failed, GuestCrashed, bang"
    fixed = seen("Running", conditions=[{"type": "LiveMigratable", "status": "False", "message": "not built"}])
    assert standing(TARGET, fixed) == "Running", "what it cannot do later is not what it waits for"
    assert standing(TARGET, None) == "there is no VirtualMachineInstance default/x"


async def source(*events: pb.WatchEvent) -> AsyncGenerator[pb.WatchEvent, None]:
    for event in events:
        yield event
    await asyncio.Event().wait()


def event(type_: str, body: bytes | None = None) -> pb.WatchEvent:
    kind = pb.WatchEvent.Type.Value(f"TYPE_{type_}")
    return pb.WatchEvent(type=kind, object=to_object(VMI, body) if body else None, resource_version="1")


def steps(goal: Goal, *events: pb.WatchEvent, within_s: float = 5.0) -> list[pb.WaitProgress]:
    async def collect() -> list[pb.WaitProgress]:
        return [step async for step in wait(lambda: source(*events), TARGET, goal, within_s)]

    return asyncio.run(collect())


def test_an_object_that_is_not_there_yet_is_waited_for() -> None:
    told = steps(
        RUNNING, event("BOOKMARK"), event("ADDED", document("Pending")), event("MODIFIED", document("Running"))
    )
    assert [(step.done, step.object.phase) for step in told] == [(False, ""), (False, "Pending"), (True, "Running")]


def test_nothing_is_said_before_the_list_is_complete() -> None:
    told = steps(
        Goal(gone=True), event("ADDED", document("Running")), event("BOOKMARK"), event("DELETED", document("x"))
    )
    assert told[-1].done
    assert not told[-1].HasField("object")


def test_an_object_that_is_there_and_done_is_told_once() -> None:
    told = steps(RUNNING, event("ADDED", document("Running")), event("BOOKMARK"))
    assert [step.done for step in told] == [True]


def test_the_deadline_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """And while nothing happens, it is said again now and then."""
    monkeypatch.setattr(waiting, "TELL_S", 0.01)
    monkeypatch.setattr(waiting, "_EARLIER_S", 0.0)
    with pytest.raises(RpcFailure, match="is not Running after 0 s: Pending") as late:
        steps(RUNNING, event("ADDED", document("Pending")), event("BOOKMARK"), within_s=0.1)
    assert late.value.code is StatusCode.DEADLINE_EXCEEDED
