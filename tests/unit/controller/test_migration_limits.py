"""Which migrations go first when not all may, and which of those that are over are kept."""

from __future__ import annotations

from typing import Any

import pytest

from virt_controller.migration.limits import KEPT, crowd, surplus
from virt_core.apis.base import from_plain
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.kube.configvalues import MigrationLimits

LIMITS = MigrationLimits(parallel_per_cluster=2, parallel_outbound_per_node=1)
CRITICAL, USER, LATER = "system-critical", "user-triggered", "system-maintenance"


def job(name: str, phase: str = "Pending", priority: str | None = None, created: str = "2026-01-01T00:00:00Z") -> Job:
    """Its machine is on the node that its name ends with."""
    spec: dict[str, Any] = {"vmiName": name} | ({"priority": priority} if priority else {})
    meta = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created}
    return from_plain({"metadata": meta, "spec": spec, "status": {"phase": phase}}, Job)


def held(mine: Job, *others: Job, waiting: tuple[str, ...] = ()) -> str:
    return crowd(
        mine, [mine, *others], lambda each: each.metadata.name[-1], LIMITS, lambda each: each.metadata.name in waiting
    )


def test_as_many_as_the_limits_allow() -> None:
    mine = job("mine-a")
    assert held(mine) == ""
    assert held(mine, job("x-b", "Running")) == ""
    assert "in the cluster" in held(mine, job("x-b", "Running"), job("y-c", "Scheduling"))
    assert "leaving node a" in held(mine, job("x-a", "Running"))
    assert held(mine, job("x-a", "Failed"), job("y-a", "Succeeded")) == "", "they are over"


@pytest.mark.parametrize(
    ("mine", "other", "waits"),
    [(None, CRITICAL, True), (LATER, None, True), (LATER, USER, True), (USER, None, False), (CRITICAL, LATER, False)],
)
def test_what_matters_more_goes_first(mine: str | None, other: str, waits: bool) -> None:
    assert bool(held(job("mine-a", priority=mine), job("other-a", priority=other))) is waits


def test_only_where_there_is_not_room_for_both() -> None:
    mine, critical = job("mine-a"), job("critical-b", priority=CRITICAL)
    assert held(mine, critical) == ""
    assert held(mine, critical, job("x-c", "Running")) == "critical-b goes first"


def test_nobody_waits_for_what_cannot_go_yet() -> None:
    assert held(job("mine-a"), job("critical-a", priority=CRITICAL), waiting=("critical-a",)) == ""


def test_the_newest_that_are_over_are_kept() -> None:
    over = [
        job(f"j{day}", "Failed" if day % 2 else "Succeeded", created=f"2026-01-0{day}T00:00:00Z") for day in range(1, 9)
    ]
    old = surplus([*over, job("running", "Running", created="2025-01-01T00:00:00Z")])
    assert sorted(each.metadata.name for each in old) == ["j1", "j2", "j3"]
    assert len(over) - len(old) == KEPT
