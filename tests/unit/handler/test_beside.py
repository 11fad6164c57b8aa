"""Decisions about Pods that do not have the guest: what they get ready, and what they never do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from framework.vmis import handed_over

from virt_core.apis.podroles import Role
from virt_core.apis.vmi import VirtualMachineInstance
from virt_handler.decisions import steps
from virt_handler.decisions.silence import Verdict
from virt_handler.decisions.steps import next_step
from virt_handler.decisions.vocabulary import Action, Launcher, Step, Task, View, Work
from virt_protos.launcher.v1 import launcher_pb2 as pb

NOW = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
DELETED = {"deletionTimestamp": "2026-01-01T00:00:05Z"}
ABSENT = pb.Domain(state=pb.DOMAIN_STATE_ABSENT)
RUNNING = pb.Domain(state=pb.DOMAIN_STATE_RUNNING)
CRASHED, MIGRATED = (pb.Domain(state=pb.DOMAIN_STATE_SHUTOFF, reason=reason) for reason in ("Crashed", "Migrated"))
DONE = Work(Task.DONE)
BESIDE = [Role.TARGET, Role.SOURCE, None]


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds - 1)


def view(**changes: Any) -> View:
    return View(**({"since": NOW} | changes))


def moving(phase: str) -> VirtualMachineInstance:
    return handed_over(phase, status={"migrationState": {"migrationUid": "job", "targetNode": "node2"}})


@pytest.mark.parametrize("role", BESIDE)
def test_only_the_guests_own_pod_starts_it(role: Role | None) -> None:
    ready = view(network=DONE, launcher=Launcher.READY, domain=ABSENT, prepared=DONE)
    for phase in ("Scheduled", "Running"):
        assert next_step(moving(phase), ready, NOW, role) == Step(hold=True)


def test_target_wires_its_network_and_waits() -> None:
    vmi = moving("Running")
    assert next_step(vmi, view(), NOW, Role.TARGET).action is Action.WIRE_NETWORK
    assert next_step(vmi, view(network=Work(Task.RUNNING)), NOW, Role.TARGET) == Step(hold=True)
    again = view(network=Work(Task.FAILED, error="x", retry_at=after(3)))
    assert next_step(vmi, again, after(2), Role.TARGET).recheck_s == 1
    assert next_step(vmi, again, after(3), Role.TARGET).action is Action.WIRE_NETWORK
    assert next_step(vmi, again, after(300), Role.TARGET).end is None, (
        "how long a move may take is not the node's to say"
    )
    hopeless = view(network=Work(Task.FAILED, error="x", fatal=True))
    assert next_step(vmi, hopeless, after(3), Role.TARGET) == Step(hold=True)


@pytest.mark.parametrize("role", [Role.SOURCE, None])
def test_pod_without_a_guest_gets_no_network(role: Role | None) -> None:
    assert next_step(handed_over("Running"), view(), NOW, role) == Step(hold=True, recheck_s=steps.ORPHAN_RECHECK_S)
    assert next_step(handed_over("Running"), view(pod_exists=False), NOW, role).action is Action.CLEAN_UP


@pytest.mark.parametrize("role", BESIDE)
@pytest.mark.parametrize("domain", [None, ABSENT, RUNNING, CRASHED, MIGRATED])
def test_end_of_a_launcher_beside_the_guest_is_nobody_elses_business(role: Role | None, domain: Any) -> None:
    gone = view(launcher=Launcher.GONE, domain=domain)
    assert next_step(handed_over("Running"), gone, NOW, role) == Step(Action.CLEAN_UP, hold=True)


@pytest.mark.parametrize("role", [Role.ACTIVE, *BESIDE])
def test_every_side_of_a_vmi_that_is_over_is_stopped(role: Role | None) -> None:
    runs = view(launcher=Launcher.READY, domain=RUNNING)
    assert next_step(handed_over("Running", metadata=DELETED), runs, NOW, role).action is Action.SHUTDOWN
    assert next_step(handed_over("Failed"), runs, NOW, role).action is Action.KILL
    assert next_step(None, runs, NOW, role).action is Action.SHUTDOWN
    waits = view(launcher=Launcher.READY, domain=ABSENT)
    assert next_step(handed_over("Failed"), waits, NOW, role).action is Action.DELETE
    assert next_step(None, view(launcher=Launcher.GONE), NOW, role).action is Action.CLEAN_UP


@pytest.mark.parametrize("role", BESIDE)
def test_silent_launcher_beside_the_guest_is_ended_and_not_told(role: Role | None) -> None:
    lost = view(launcher=Launcher.READY, pulse=Verdict.LOST, silent_s=70)
    step = next_step(handed_over("Running"), lost, NOW, role)
    assert (step.action, step.hold, step.end) == (Action.END_LAUNCHER, True, None)


@pytest.mark.parametrize(
    ("phase", "node", "found"),
    [
        ("Scheduling", "node1", {}),
        ("Scheduling", "node2", {"t": Role.TARGET}),
        ("Scheduled", "node1", {"a": Role.ACTIVE}),
        ("Running", "node1", {"a": Role.ACTIVE}),
        ("Running", "node2", {"t": Role.TARGET}),
        ("Running", "node3", {"s": Role.SOURCE}),
        ("Failed", "node1", {}),
        ("Failed", "node2", {}),
        ("Running", "node4", {}),
    ],
)
def test_a_node_looks_after_the_launchers_that_are_recorded_there(
    phase: str, node: str, found: dict[str, Role]
) -> None:
    pods = {"a": "node1", "t": "node2", "s": "node3"}
    vmi = handed_over(phase, status={"activePods": pods, "migrationState": {"targetNode": "node2"}})
    assert {pod.uid: pod.role for pod in steps.due_here(vmi, node)} == found
