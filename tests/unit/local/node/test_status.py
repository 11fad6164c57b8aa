"""What is reported of a Pod."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from virt_core.apis.base import from_plain
from virt_core.apis.pods import Pod, PodStatus
from virt_core.runtime.times import rfc3339_micro
from virt_local.node.pods.decide import plan
from virt_local.node.pods.status import Facts, compute
from virt_local.node.pods.view import ContainerView, Views, Waiting
from virt_local.node.runtime.records import ContainerRecord

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FACTS = Facts(
    node_ips=("10.0.0.1",), pod_ips=("10.1.0.2", "fd00::2"), sandbox_ready=True, start_time="2026-01-01T11:59:59Z"
)


def pod(status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    plain = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}], **spec},
        "status": status or {"phase": "Pending", "qosClass": "BestEffort"},
    }
    return from_plain(plain, Pod)


def report(of: Pod, view: ContainerView, facts: Facts = FACTS) -> PodStatus:
    views: Views = {"a": view}
    return compute(of, views, plan(of, views, NOW), facts, NOW)


def record(**fields: Any) -> ContainerRecord:
    return ContainerRecord(id="cid", name="a", started_at=rfc3339_micro(NOW), **fields)


def conditions(status: PodStatus) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status, condition.reason) for condition in status.conditions}


def test_running_says_everything_in_one_status() -> None:
    status = report(pod(), ContainerView(record()))
    assert (status.phase, status.pod_ip, [p.ip for p in status.pod_ips]) == (
        "Running",
        "10.1.0.2",
        ["10.1.0.2", "fd00::2"],
    )
    assert (status.host_ip, status.start_time, status.qos_class) == ("10.0.0.1", "2026-01-01T11:59:59Z", "BestEffort")
    assert {kind for kind, (state, _) in conditions(status).items() if state == "True"} == {
        "PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready",
    }  # fmt: skip
    container = status.container_statuses[0]
    assert (container.ready, container.started, container.container_id) == (True, True, "virtpod://cid")


def test_the_same_again_is_no_change() -> None:
    first = report(pod(), ContainerView(record()))
    again = pod()
    again.status = first
    later = compute(
        again,
        {"a": ContainerView(record())},
        plan(again, {"a": ContainerView(record())}, NOW),
        FACTS,
        NOW + timedelta(hours=1),
    )
    assert later == first


def test_conditions_of_others_and_their_order_stay() -> None:
    status = {
        "phase": "Pending",
        "conditions": [
            {"type": "Foreign", "status": "True", "message": "mine"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ],
    }
    found = report(pod(status), ContainerView(record())).conditions
    assert [condition.type for condition in found[:3]] == ["Foreign", "PodScheduled", "Ready"]
    assert found[0].message == "mine"
    assert found[1].last_transition_time == "2026-01-01T00:00:00Z"
    assert found[2].last_transition_time == "2026-01-01T12:00:00Z"


def test_a_readiness_gate_holds_ready_back() -> None:
    gates = [{"conditionType": "Gate"}]
    closed = report(pod(readinessGates=gates), ContainerView(record()))
    assert conditions(closed)["Ready"] == ("False", "ReadinessGatesNotReady")
    assert conditions(closed)["ContainersReady"][0] == "True"
    opened = {"phase": "Running", "conditions": [{"type": "Gate", "status": "True"}]}
    assert conditions(report(pod(opened, readinessGates=gates), ContainerView(record())))["Ready"][0] == "True"


def test_an_unready_container_is_named() -> None:
    status = report(pod(), ContainerView(record(), ready=False))
    ready = next(condition for condition in status.conditions if condition.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "ContainersNotReady")
    assert ready.message == "containers with unready status: [a]"


def test_an_end_with_code_and_message() -> None:
    view = ContainerView(record(exit_code=3, finished_at=rfc3339_micro(NOW), reason="Error", message="why"))
    status = report(pod(), view)
    state = status.container_statuses[0].state
    assert state is not None
    assert state.terminated is not None
    assert (status.phase, state.terminated.exit_code, state.terminated.message) == ("Failed", 3, "why")
    assert conditions(status)["Ready"] == ("False", "PodFailed")


def test_crash_loop_shows_the_last_end() -> None:
    view = ContainerView(record(exit_code=1, finished_at=rfc3339_micro(NOW), level=1, attempt=1))
    container = report(pod(restartPolicy="Always"), view).container_statuses[0]
    assert container.state is not None
    assert container.state.waiting is not None
    assert container.state.waiting.reason == "CrashLoopBackOff"
    assert container.last_state is not None
    assert container.last_state.terminated is not None
    assert container.restart_count == 1


def test_why_a_container_waits() -> None:
    status = report(pod(), ContainerView(waiting=Waiting("ErrImagePull", "no such image", NOW + timedelta(1))))
    state = status.container_statuses[0].state
    assert state is not None
    assert state.waiting is not None
    assert (status.phase, state.waiting.reason, state.waiting.message) == ("Pending", "ErrImagePull", "no such image")


def test_a_pod_that_was_stopped_says_why() -> None:
    facts = Facts(failure=("DeadlineExceeded", "too long"))
    view = ContainerView(record(exit_code=0, finished_at=rfc3339_micro(NOW)))
    status = report(pod(), view, facts)
    assert (status.phase, status.reason, status.message) == ("Failed", "DeadlineExceeded", "too long")
