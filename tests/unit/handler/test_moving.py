"""A machine on its way: what each side does and tells. Above all, who may let the guest run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from framework.vmis import handed_over

from virt_core.apis import names
from virt_core.apis.meta import Condition
from virt_core.apis.podroles import Role
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import get_condition
from virt_core.runtime.times import rfc3339
from virt_handler.decisions import moving
from virt_handler.decisions.domains import bounded, newest
from virt_handler.decisions.foretold import LASTS_S
from virt_handler.decisions.limits import MAX_TEXT, MAX_WORD
from virt_handler.decisions.status import is_urgent, reported
from virt_handler.decisions.steps import next_step
from virt_handler.decisions.vocabulary import Action, Foreseen, Launcher, Step, Task, View, Way, Work
from virt_handler.loop.moves import wishes
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.node.v1 import node_pb2

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = "job"
PORTS = {"1001": 0, "1002": 49152, "1003": 49153}
READY = {"targetNodeAddress": "10.0.0.2", "targetDirectMigrationNodePorts": PORTS}
DONE = Work(Task.DONE)
RUNS = pb.DOMAIN_STATE_RUNNING
STANDS = pb.DOMAIN_STATE_PAUSED


def vmi(**move: Any) -> VirtualMachineInstance:
    state = {"migrationUid": JOB, "sourceNode": "node1", "targetNode": "node2"} | move
    disks = [{"name": "root", "containerDiskVolume": {"checksum": 1}}]
    return handed_over("Running", status={"nodeName": "node1", "migrationState": state, "volumeStatus": disks})


def view(state: Any = RUNS, reason: str = "", move: pb.Move | None = None, **changes: Any) -> View:
    domain = pb.Domain(state=state, reason=reason, move=move)
    return View(**({"since": NOW, "launcher": Launcher.READY, "domain": domain, "network": DONE} | changes))


def source(machine: VirtualMachineInstance, seen: View) -> Step:
    return next_step(machine, seen, NOW, Role.ACTIVE)


# -- the side that it leaves


def test_it_leaves_when_the_other_side_is_ready_and_not_before() -> None:
    assert source(vmi(), view()).action is Action.NOTHING
    assert source(vmi(**READY), view()).action is Action.MIGRATE
    assert source(vmi(**READY), view(move=pb.Move(uid=JOB, started_us=1))).action is Action.NOTHING
    asked = vmi(**READY, abortRequested=True)
    assert source(asked, view()).action is Action.CANCEL_MOVE, "a call that is on its way must not begin it any more"
    assert moving.job_of(Action.CANCEL_MOVE, asked, view().domain) == JOB


def test_post_copy_has_one_connection() -> None:
    """QEMU refuses it with several, before anything is moved."""
    for allowed, connections in ((True, 0), (False, 8)):
        machine = vmi(**READY, migrationConfiguration={"allowPostCopy": allowed})
        assert machine.status.migration_state is not None
        asked = wishes(machine, machine.status.migration_state)
        assert (asked.post_copy, asked.parallel_connections) == (allowed, connections)


def test_it_is_given_up_once() -> None:
    asked = vmi(**READY, abortRequested=True)
    assert source(asked, view(move=pb.Move(uid=JOB))).action is Action.CANCEL_MOVE
    assert source(asked, view(move=pb.Move(uid=JOB, abort="Aborting"))).action is Action.NOTHING
    assert source(asked, view(move=pb.Move(uid=JOB, ended_us=1))).action is Action.NOTHING


def test_a_held_guest_goes_on_only_when_the_move_is_written_down_as_failed() -> None:
    held = view(STANDS, "Migration", pb.Move(uid=JOB, held=True))
    assert source(vmi(**READY), held).action is Action.NOTHING
    assert source(vmi(**READY, failed=True, completed=True), held).action is Action.SETTLE_STAYS
    assert source(vmi(migrationUid="another"), held).action is Action.SETTLE_STAYS, (
        "none begins before this one is over"
    )
    assert moving.job_of(Action.SETTLE_STAYS, vmi(migrationUid="another"), held.domain) == JOB


def test_what_the_guest_has_left_never_runs_again() -> None:
    left = handed_over("Running", status={"nodeName": "node2", "migrationState": {"migrationUid": JOB}})
    held = view(STANDS, "Migration", pb.Move(uid=JOB, held=True))
    assert next_step(left, held, NOW, Role.SOURCE).action is Action.SETTLE_GONE


def told(machine: VirtualMachineInstance, move: pb.Move | None) -> Any:
    seen = view(move=move)
    return reported(machine, seen, Step(), NOW).status.migration_state


def test_the_source_tells_the_beginning_and_a_failure() -> None:
    begun = told(vmi(**READY), pb.Move(uid=JOB, started_us=1_000_000, mode="PreCopy"))
    assert (begun.start_timestamp, begun.mode, begun.failed) == ("1970-01-01T00:00:01Z", "PreCopy", False)
    over = told(
        vmi(**READY), pb.Move(uid=JOB, started_us=1, ended_us=2_000_000, failed=True, reason="x", abort="Succeeded")
    )
    assert (over.failed, over.completed, over.failure_reason, over.abort_status) == (True, True, "x", "Succeeded")
    assert over.end_timestamp == "1970-01-01T00:00:02Z"


def test_that_a_move_never_began_is_the_launchers_word() -> None:
    assert not told(vmi(abortRequested=True), None).failed
    declined = pb.Move(uid=JOB, started_us=1, ended_us=1, failed=True, reason="never began", abort="Succeeded")
    assert told(vmi(abortRequested=True), declined).failure_reason == "never began"
    late = vmi(abortRequested=True, failureReason="the target was not ready")
    assert told(late, declined).failure_reason == "the target was not ready"


@pytest.mark.parametrize(
    "gone", [{"launcher": Launcher.GONE}, {"launcher": Launcher.WAITING, "pod_exists": False, "domain": None}]
)
def test_the_end_of_its_launcher_is_not_the_end_of_a_guest_that_may_have_left(gone: dict[str, Any]) -> None:
    assert source(vmi(), view(STANDS, "Migration", **gone)).end is not None
    step = source(vmi(**READY), view(STANDS, "Migration", **gone))
    assert (step.end, step.hold) == (None, True)
    assert source(vmi(**READY, failed=True, completed=True), view(STANDS, "Migration", **gone)).end is not None


def test_a_guest_that_left_for_a_node_that_lost_it_has_failed() -> None:
    left = view(pb.DOMAIN_STATE_SHUTOFF, "Migrated", pb.Move(uid=JOB, ended_us=1))
    assert source(vmi(**READY), left).end is None
    end = source(vmi(**READY, failed=True, completed=True, failureReason="its Pod ended"), left).end
    assert end is not None
    assert end.message == "the guest had left for node node2 and is lost there: its Pod ended"


def test_the_moment_of_the_switch_is_not_told() -> None:
    seen = view(STANDS, "Migration", pb.Move(uid=JOB, started_us=1))
    assert "Paused" not in {c.type for c in reported(vmi(**READY), seen, Step(), NOW).status.conditions}
    held = view(STANDS, "Migration", pb.Move(uid=JOB, started_us=1, held=True))
    assert "Paused" in {c.type for c in reported(vmi(**READY), held, Step(), NOW).status.conditions}


def test_a_guest_that_waits_for_memory_of_the_other_side_is_told() -> None:
    lost = view(STANDS, "PostcopyFailed", pb.Move(uid=JOB, started_us=1, mode="PostCopy", reason="the way was lost"))
    after = reported(vmi(**READY), lost, Step(), NOW).status
    (paused,) = [c for c in after.conditions if c.type == "Paused"]
    assert (paused.reason, paused.message) == ("PausedByMigrationMonitor", "the way was lost")
    assert after.migration_state is not None
    assert not after.migration_state.completed
    assert source(vmi(**READY), lost).action is Action.NOTHING


# -- the side that it moves to


def target(machine: VirtualMachineInstance, seen: View) -> Step:
    return next_step(machine, seen, NOW, Role.TARGET)


def test_a_target_is_made_ready_once() -> None:
    empty = view(pb.DOMAIN_STATE_ABSENT)
    assert target(vmi(), empty).action is Action.PREPARE_TARGET
    assert target(vmi(), view(pb.DOMAIN_STATE_ABSENT, prepared=Work(Task.RUNNING))).action is Action.NOTHING
    assert target(vmi(), view(pb.DOMAIN_STATE_ABSENT, network=Work())).action is Action.WIRE_NETWORK
    begun = vmi(startTimestamp="2026-01-01T00:00:00Z")
    assert target(begun, empty).action is Action.DELETE, "a way that is lost is not opened anew in the middle"


def test_a_target_ends_when_nobody_comes_any_more() -> None:
    """The source may hold the guest until then."""
    way = Way(JOB, "10.0.0.2", {})
    waiting = {"prepared": DONE, "way": way}
    begun, early = vmi(**READY, startTimestamp="2026-01-01T00:00:00Z"), vmi(**READY)
    empty = view(pb.DOMAIN_STATE_ABSENT, **waiting)
    assert target(early, empty).action is target(begun, empty).action is Action.NOTHING
    left = view(pb.DOMAIN_STATE_ABSENT, prepared=DONE, way=replace(way, over=True))
    assert target(early, left).action is Action.DELETE
    assert target(early, view(STANDS, "Migration", prepared=DONE, way=replace(way, over=True))).action is Action.NOTHING
    assert next_step(begun, empty, NOW + timedelta(minutes=1), Role.TARGET).action is Action.DELETE


def test_what_nobody_wants_any_more_ends() -> None:
    failed = vmi(failed=True, completed=True)
    assert target(failed, view()).action is Action.KILL
    assert target(failed, view(STANDS, "Migration")).action is Action.KILL
    assert target(failed, view(pb.DOMAIN_STATE_ABSENT)).action is Action.DELETE


def arrival(machine: VirtualMachineInstance, seen: View) -> VirtualMachineInstance:
    return moving.arrival_told(machine, seen, "node2", NOW)


def test_the_way_is_told_with_kubevirts_numbers() -> None:
    way = Way(JOB, "10.0.0.2", {"move-libvirt": 1001, "move-memory": 1002, "move-disks": 1003})
    state = arrival(vmi(), view(pb.DOMAIN_STATE_ABSENT, way=way)).status.migration_state
    assert state is not None
    assert (state.target_node_address, state.target_direct_migration_node_ports) == ("10.0.0.2", PORTS)
    assert moving.ports_of(state) == way.ports
    old = Way("another", "10.0.0.2", way.ports)
    assert arrival(vmi(), view(pb.DOMAIN_STATE_ABSENT, way=old)) == vmi()


@pytest.mark.parametrize(
    "broken",
    [
        {"refused": "x"},
        {"network": Work(Task.FAILED, "x", fatal=True)},
        {"prepared": Work(Task.FAILED, "x", fatal=True)},
    ],
)
def test_a_target_that_cannot_be_says_so(broken: dict[str, Any]) -> None:
    state = arrival(vmi(), view(pb.DOMAIN_STATE_ABSENT, **broken)).status.migration_state
    assert state is not None
    assert state.failed
    assert "x" in state.failure_reason
    told = vmi(**READY)
    assert arrival(told, view(pb.DOMAIN_STATE_ABSENT, **broken)) is told, "the source may have begun"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (STANDS, "Migration"),
        (STANDS, "StartingUp"),
        (STANDS, "Unknown"),
        # libvirt ends it, because the way was cut.
        (STANDS, "ShuttingDown"),
        (STANDS, "Crashed"),
        (pb.DOMAIN_STATE_SHUTTING_DOWN, ""),
        (pb.DOMAIN_STATE_SHUTTING_DOWN, "User"),
        (RUNS, "Postcopy"),
        (RUNS, "PostcopyFailed"),
        (STANDS, "PostcopyFailed"),
    ],
)
def test_memory_that_fills_is_not_taken_over(state: Any, reason: str) -> None:
    assert arrival(vmi(**READY), view(state, reason)) == vmi(**READY)


@pytest.mark.parametrize(("state", "reason"), [(RUNS, ""), (STANDS, "User")])
def test_the_guest_is_taken_over_in_one_write(state: Any, reason: str) -> None:
    after = arrival(vmi(**READY), view(state, reason))
    move = after.status.migration_state
    assert move is not None
    assert (after.status.node_name, after.metadata.labels["kubevirt.io/nodeName"]) == ("node2", "node2")
    assert "kubevirt.io/migrationTargetNodeName" not in after.metadata.labels
    assert (move.completed, move.failed, move.target_node_domain_detected) == (True, False, True)
    assert move.end_timestamp == "2026-01-01T00:00:00Z"


def test_a_move_that_has_failed_is_not_taken_over() -> None:
    """Its source may let the guest run again by now."""
    failed = vmi(**READY, failed=True, completed=True)
    assert arrival(failed, view()) == failed


def test_a_guest_that_arrived_was_not_given_up() -> None:
    asked = vmi(**READY, abortRequested=True, abortStatus="Aborting")
    over = arrival(asked, view()).status.migration_state
    assert over is not None
    assert (over.completed, over.failed, over.abort_status) == (True, False, "Failed")


def test_another_nodes_guest_is_not_taken_over() -> None:
    machine = vmi(**READY)
    assert moving.arrival_told(machine, view(), "node3", NOW) == machine


# -- what a launcher says of a move


@pytest.mark.parametrize("time_us", [1 << 62, -(1 << 62)])
def test_a_launcher_that_makes_a_move_up_breaks_nothing(time_us: int) -> None:
    """It may be in the hands of its guest, and what it says goes into the VMI's status."""
    made_up = pb.Move(
        uid=JOB,
        mode="m" * 9999,
        reason="r\n" * 9999,
        abort="a" * 9999,
        started_us=time_us,
        ended_us=time_us,
        failed=True,
    )
    told = bounded(pb.Domain(state=RUNS, move=made_up))
    assert (len(told.move.mode), len(told.move.reason), len(told.move.abort)) == (MAX_WORD, MAX_TEXT, MAX_WORD)
    told.move.ended_us = max(told.move.ended_us, 1)
    seen = reported(vmi(**READY), view(move=told.move), Step(), NOW).status.migration_state
    assert seen is not None
    assert seen.failed
    assert "\n" not in seen.failure_reason


def test_how_a_move_went_is_told_after_the_machine_has_left() -> None:
    left = pb.Domain(state=pb.DOMAIN_STATE_SHUTOFF, reason="Migrated", move=pb.Move(uid=JOB))
    later = pb.Domain(state=pb.DOMAIN_STATE_ABSENT, move=pb.Move(uid=JOB, ended_us=5, downtime_ms=40))
    both = newest(left, later)
    assert both is not None
    assert (both.state, both.move.downtime_ms) == (left.state, 40)
    assert newest(left, pb.Domain(move=pb.Move(uid="other"))) is left


# -- what the move was said to take


def foreseen(machine: VirtualMachineInstance, now: datetime = NOW, **move: Any) -> Any:
    """The forecast in the status that would be written now."""
    told = Foreseen(JOB, node_pb2.CONVERGENCE_NO, "will not converge")
    seen = view(move=pb.Move(uid=JOB, started_us=int(NOW.timestamp() * 1e6), **move), foreseen=told)
    return get_condition(reported(machine, seen, Step(), now).status.conditions, names.CONDITION_FORECAST)


def test_the_forecast_is_written_with_the_start_or_once_the_move_lasts() -> None:
    """Not by a write of its own at the moment when the target takes the guest over."""
    found = foreseen(vmi(**READY))
    assert (found.status, found.reason, found.message) == ("False", "WillNotConverge", "will not converge")
    begun = vmi(**READY, startTimestamp=rfc3339(NOW))
    assert foreseen(begun) is None
    assert foreseen(begun, NOW + timedelta(seconds=LASTS_S)) is not None


def test_the_forecast_goes_with_its_move() -> None:
    assert foreseen(vmi(**READY), ended_us=1, failed=True) is None
    machine = vmi(**READY)
    machine.status.conditions = [Condition(type=names.CONDITION_FORECAST, status="True")]
    over = moving.arrival_told(machine, view(), "node2", NOW)
    assert over.status.node_name == "node2"
    assert get_condition(over.status.conditions, names.CONDITION_FORECAST) is None


def test_start_and_failure_of_a_move_are_told_at_once() -> None:
    before, begun = vmi(**READY), vmi(**READY, startTimestamp=rfc3339(NOW))
    assert is_urgent(before, begun)
    assert is_urgent(begun, vmi(**READY, startTimestamp=rfc3339(NOW), failed=True))
    assert not is_urgent(begun, vmi(**READY, startTimestamp=rfc3339(NOW), mode="PostCopy"))
