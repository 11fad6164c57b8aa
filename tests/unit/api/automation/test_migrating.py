"""Migrate by gRPC: everything in the caller's name, each step told once, an end in any case."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from grpc import StatusCode

from virt_api.automation import migrating
from virt_api.automation.failures import Failure
from virt_api.automation.migrating import Caller, cancel, migrate
from virt_api.automation.objects import VM, VMI, Resource, Target
from virt_api.automation.userapi import Call
from virt_core.kube.errors import ApiError, Conflict, NotFound
from virt_core.rpc.status import RpcFailure
from virt_protos.automation.v1 import automation_pb2 as pb

JOBS = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstancemigrations"
PROGRESS = "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/guest/migrationprogress"
SEEN = {"migrationUID": "u", "mode": "PreCopy", "totalBytes": 100, "processedBytes": 75, "remainingBytes": 25}
WAY = {"sourceNode": "node1", "targetNode": "node2"}


def job(phase: str = "", **state: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "move", "namespace": "ns", "uid": "u"},
        "spec": {"vmiName": "guest"},
        "status": {"phase": phase, "migrationState": {**WAY, **state}},
    }


class FakeApi:
    """Answers in turn for each path; the last answer stays."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers, self.calls = answers, list[Call]()

    async def send(self, token: str, call: Call) -> bytes:
        assert token == "mine"
        self.calls.append(call)
        kind = "progress" if call.path == PROGRESS else "job" if call.path == f"{JOBS}/move" else "begin"
        queue = self.answers.get("delete" if call.method == "DELETE" else kind, [NotFound(404, "NotFound", "gone")])
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(answer, ApiError):
            raise answer
        return json.dumps(answer).encode() if answer is not None else b""


def steps(
    api: FakeApi, resource: Resource = VM, within_s: float = 60.0, **request: Any
) -> tuple[list[pb.MigrateProgress], RpcFailure | None]:
    async def collect() -> tuple[list[pb.MigrateProgress], RpcFailure | None]:
        found: list[pb.MigrateProgress] = []
        target = Target(resource, "ns", "guest")
        try:
            async for step in migrate(Caller(api, "mine"), target, pb.MigrateRequest(**request), within_s):  # type: ignore[arg-type]
                found.append(step)  # noqa: PERF401 - what came before a failure counts
        except RpcFailure as failure:
            return found, failure
        return found, None

    return asyncio.run(collect())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "LOOK_EVERY_S", 0.001)


def test_a_move_is_told_step_by_step() -> None:
    running = job("Running")
    api = FakeApi(
        begin=[job()],
        job=[job(), job("Pending"), job("Pending"), running, job("Succeeded")],
        # The target is faster to say that it is over than the source.
        progress=[SEEN, SEEN, {**SEEN, "ended": True, "downtimeMilliseconds": 40, "elapsedSeconds": 2.0}],
    )
    found, failure = steps(api, added_node_selector={"zone": "a"})
    assert failure is None
    assert [(step.phase, step.done, step.succeeded) for step in found] == [
        ("", False, False), ("Pending", False, False), ("Running", False, False), ("Succeeded", True, True),
    ]  # fmt: skip
    assert found[2].figures.remaining_bytes == 25
    assert found[3].message == "it was migrated from node1 to node2 in 2.0 s; the guest stood still for 40 ms"
    assert (found[3].figures.downtime_ms, found[3].job_name) == (40, "move")
    assert api.calls[0].path == "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachines/guest/migrate"
    assert json.loads(api.calls[0].body or b"") == {"addedNodeSelector": {"zone": "a"}}


def test_a_failure_is_an_answer_with_its_reason() -> None:
    found, failure = steps(FakeApi(begin=[job()], job=[job("Failed", failureReason="the target Pod is gone")]))
    assert failure is None
    assert (found[-1].done, found[-1].succeeded, found[-1].message) == (True, False, "the target Pod is gone")


def test_figures_of_another_move_are_not_told() -> None:
    api = FakeApi(begin=[job()], job=[job("Running"), job("Succeeded")], progress=[{**SEEN, "migrationUID": "old"}])
    found, _ = steps(api)
    assert not any(step.HasField("figures") for step in found)


def test_an_end_without_its_figures_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "LAST_FIGURES_WITHIN_S", 0.01)
    found, failure = steps(FakeApi(begin=[job()], job=[job("Succeeded")], progress=[SEEN]))
    assert failure is None
    assert (found[-1].succeeded, found[-1].figures.downtime_ms) == (True, 0)


def test_an_instance_alone_is_moved_by_a_job_of_the_caller() -> None:
    api = FakeApi(begin=[job()], job=[job("Succeeded")])
    steps(api, VMI)
    assert (api.calls[0].method, api.calls[0].path) == ("POST", JOBS)
    assert json.loads(api.calls[0].body or b"")["spec"] == {"vmiName": "guest"}


def test_a_dry_run_is_one_answer_the_forecast() -> None:
    told = {"verdict": "WillNotConverge", "message": "will not converge", "expectedSeconds": 1.5}
    api = FakeApi(begin=[told])
    (found,), failure = steps(api, dry_run=True)
    assert failure is None
    assert (found.done, found.forecast.verdict, found.forecast.expected_ms) == (True, "WillNotConverge", 1500)
    assert json.loads(api.calls[0].body or b"") == {"dryRun": ["All"]}
    assert len(api.calls) == 1
    api = FakeApi(begin=[job()])
    (found,), _ = steps(api, VMI, dry_run=True)
    assert (found.done, found.HasField("forecast"), api.calls[0].query) == (True, False, {"dryRun": "All"})


def test_a_machine_that_cannot_be_moved_is_a_precondition() -> None:
    found, failure = steps(FakeApi(begin=[Conflict(409, "Conflict", "it has a device of its node")]))
    assert not found
    assert failure is not None
    assert (failure.code, failure.message) == (StatusCode.FAILED_PRECONDITION, "it has a device of its node")


def test_looking_on_ends_with_its_time_and_with_the_job() -> None:
    found, failure = steps(FakeApi(begin=[job()], job=[job("Pending")]), within_s=0.3)
    assert [step.phase for step in found] == ["Pending"]
    assert isinstance(failure, Failure)
    assert failure.code is StatusCode.DEADLINE_EXCEEDED
    _, failure = steps(FakeApi(begin=[job()]))
    assert failure is not None
    assert failure.code is StatusCode.FAILED_PRECONDITION


def test_cancel_deletes_what_is_under_way_and_only_that() -> None:
    over = {**job("Succeeded"), "metadata": {"name": "old", "namespace": "ns", "uid": "o"}}
    api = FakeApi(begin=[{"items": [over, job("Running")]}], delete=[{}])
    target = Target(VMI, "ns", "guest")
    assert asyncio.run(cancel(Caller(api, "mine"), target, dry_run=True)) == "move"  # type: ignore[arg-type]
    assert (api.calls[-1].method, api.calls[-1].path, api.calls[-1].query) == (
        "DELETE",
        f"{JOBS}/move",
        {"dryRun": "All"},
    )
    assert json.loads(api.calls[-1].body or b"")["preconditions"] == {"uid": "u"}
    with pytest.raises(RpcFailure, match="no migration of"):
        asyncio.run(cancel(Caller(FakeApi(begin=[{"items": [over]}]), "mine"), target, dry_run=False))  # type: ignore[arg-type]
