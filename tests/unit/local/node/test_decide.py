"""What a Pod needs next, without any Pod."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.pods import Pod
from virt_core.runtime.times import rfc3339_micro
from virt_local.node.pods.decide import Plan, backoff_delay, next_level, plan
from virt_local.node.pods.view import ContainerView, Views, Waiting
from virt_local.node.runtime.records import ContainerRecord

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(policy: str = "Never", names: str = "a", inits: str = "", sidecars: str = "") -> Pod:
    init = [{"name": n, "restartPolicy": "Always"} if n in sidecars.split() else {"name": n} for n in inits.split()]
    spec: dict[str, Any] = {
        "restartPolicy": policy, "containers": [{"name": n} for n in names.split()], "initContainers": init,
    }  # fmt: skip
    return from_plain({"spec": spec}, Pod)


def running(name: str = "a", **fields: Any) -> ContainerView:
    return ContainerView(ContainerRecord(id=name, name=name, started_at=rfc3339_micro(NOW)), **fields)


def ended(code: int, *, level: int = 0, ran: float = 1, ago: float = 0) -> ContainerView:
    finished = NOW - timedelta(seconds=ago)
    record = ContainerRecord(
        id="x", name="x", level=level, exit_code=code,
        started_at=rfc3339_micro(finished - timedelta(seconds=ran)), finished_at=rfc3339_micro(finished),
    )  # fmt: skip
    return ContainerView(record)


def decide(of: Pod, **views: ContainerView) -> Plan:
    table: Views = dict(views)
    return plan(of, table, NOW)


def test_all_containers_start_at_once() -> None:
    assert decide(pod(names="a b")).start == ("a", "b")
    assert decide(pod(names="a b")).phase == "Pending"


def test_nothing_to_do_while_all_run() -> None:
    assert decide(pod(), a=running()) == Plan(initialized=True, phase="Running")


@pytest.mark.parametrize(
    ("policy", "code", "phase", "starts"),
    [
        ("Never", 0, "Succeeded", False),
        ("Never", 1, "Failed", False),
        ("OnFailure", 0, "Succeeded", False),
        ("OnFailure", 1, "Running", True),
        ("Always", 0, "Running", True),
        ("Always", 1, "Running", True),
    ],
)
def test_restart_policies(policy: str, code: int, phase: str, starts: bool) -> None:
    found = decide(pod(policy), a=ended(code))
    assert (found.phase, bool(found.start)) == (phase, starts)


def test_one_failed_of_two_fails_the_pod_only_when_both_have_ended() -> None:
    assert decide(pod(names="a b"), a=ended(1), b=running("b")).phase == "Running"
    assert decide(pod(names="a b"), a=ended(1), b=ended(0)).phase == "Failed"


def test_backoff_grows_to_five_minutes_and_resets() -> None:
    def delay(level: int, ran: float = 1) -> float:
        record = ended(1, level=level, ran=ran).current
        assert record is not None
        return backoff_delay(record).total_seconds()

    assert [delay(level) for level in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert delay(5, ran=601) == 0
    recovered = ended(1, level=5, ran=601).current
    assert recovered is not None
    assert next_level(recovered) == 1


def test_a_crashed_container_waits_its_time() -> None:
    found = decide(pod("Always"), a=ended(1, level=1, ago=4))
    assert found.start == ()
    assert found.wake_at == NOW + timedelta(seconds=6)
    assert decide(pod("Always"), a=ended(1, level=1, ago=10)).start == ("a",)


def test_a_waiting_container_is_tried_when_due_or_woken() -> None:
    later = NOW + timedelta(seconds=3)
    assert decide(pod(), a=ContainerView(waiting=Waiting("ErrImagePull", until=later))).wake_at == later
    assert decide(pod(), a=ContainerView(waiting=Waiting("ErrImagePull", until=NOW))).start == ("a",)
    assert decide(pod(), a=ContainerView(waiting=Waiting("X", until=None))) == Plan(initialized=True)


def test_init_containers_come_one_by_one() -> None:
    of = pod(inits="i j")
    assert decide(of).start == ("i",)
    assert decide(of, i=running("i")).start == ()
    assert decide(of, i=ended(0)).start == ("j",)
    assert decide(of, i=ended(0), j=ended(0)).start == ("a",)
    assert decide(of, i=ended(0)).initialized is False
    assert decide(of, i=ended(0), j=ended(0)).initialized is True


def test_a_failed_init_container() -> None:
    assert decide(pod(inits="i"), i=ended(1)).phase == "Failed"
    assert decide(pod("Always", inits="i"), i=ended(1)).start == ("i",)


def test_init_containers_do_not_run_again_once_the_others_have_begun() -> None:
    assert decide(pod("Always", inits="i"), a=running()) == Plan(initialized=True, phase="Running")


def test_a_sidecar_gates_only_until_it_has_started() -> None:
    of = pod(inits="s j", sidecars="s")
    assert decide(of).start == ("s",)
    assert decide(of, s=replace(running("s"), started=False)).start == ()
    assert decide(of, s=running("s")).start == ("j",)


def test_a_sidecar_is_restarted_and_stopped_last() -> None:
    of = pod(inits="s", sidecars="s")
    assert decide(of, s=ended(1), a=running()).start == ("s",)
    found = decide(of, s=running("s"), a=ended(0))
    assert (found.stop, found.phase) == (("s",), "Running")
    assert decide(of, s=ended(143), a=ended(0)).phase == "Succeeded"
