"""The timeline: done steps by time, then the one that is waited for, then the rest."""

from __future__ import annotations

import pytest
from framework.machines import ALL, at, upto, vmi

from virt_core.apis.handoffs import LAUNCHER_READY
from virt_core.kube.vmistatus import with_handoff
from virtctl.explain.timeline import State, timeline, waiting_step


def test_a_whole_start_in_the_order_of_time() -> None:
    """Launcher and network run side by side; the sum of all durations is the total."""
    steps = timeline(vmi("Running", ALL), at(60))
    assert [s.name for s in steps] == sorted(ALL, key=lambda name: ALL[name])
    assert all(s.state is State.DONE for s in steps)
    assert sum(s.took_s or 0 for s in steps) == pytest.approx(1.55)
    assert steps[-1].at_s == pytest.approx(1.55)
    assert steps[0].took_s == 0


def test_a_later_move_does_not_change_the_start() -> None:
    machine = vmi("Running", ALL)
    before = timeline(machine, at(60))
    machine.status = with_handoff(machine.status, LAUNCHER_READY, at(50), pod_uid="p2")
    assert timeline(machine, at(60)) == before


@pytest.mark.parametrize(("now", "state"), [(9, State.WAITING), (11, State.OVERDUE)])
def test_the_first_missing_step_is_waited_for_against_its_limit(now: float, state: State) -> None:
    steps = timeline(vmi("Pending", upto("accepted")), at(now))
    step = waiting_step(steps)
    assert step is not None
    assert (step.name, step.owner, step.state, step.took_s) == ("pod-created", "virt-controller", state, now)
    assert {s.state for s in steps[2:]} == {State.LATER}


def test_without_any_handoff_the_wait_begins_with_the_creation() -> None:
    step = waiting_step(timeline(vmi(""), at(4)))
    assert step is not None
    assert (step.name, step.took_s) == ("accepted", 4)


def test_a_step_that_later_ones_have_overtaken_is_not_waited_for() -> None:
    done = {name: ALL[name] for name in ALL if name not in ("network-ready", "running")}
    steps = {s.name: s.state for s in timeline(vmi("Scheduled", done), at(2))}
    assert steps["network-ready"] is State.SKIPPED
    assert steps["running"] is State.WAITING


def test_network_and_launcher_prove_nothing_for_each_other() -> None:
    done = {**upto("handed-over"), "launcher-ready": 0.9}
    steps = {s.name: s.state for s in timeline(vmi("Scheduled", done), at(2))}
    assert steps["network-ready"] is State.WAITING


def test_a_machine_without_network_runs() -> None:
    done = {name: ALL[name] for name in ALL if name != "network-ready"}
    steps = {s.name: s.state for s in timeline(vmi("Running", done), at(2))}
    assert steps["network-ready"] is State.SKIPPED


def test_after_a_failure_nobody_waits() -> None:
    steps = timeline(vmi("Failed", upto("handed-over")), at(100))
    assert waiting_step(steps) is None
    assert {s.state for s in steps[4:]} == {State.NEVER}


def test_a_step_of_a_newer_server_is_shown_as_it_is() -> None:
    steps = timeline(vmi("Running", {**ALL, "warmed-up": 2.0}), at(3))
    assert (steps[-1].name, steps[-1].state, steps[-1].title) == ("warmed-up", State.DONE, "")
