"""`virtctl migrate`, `migrate-cancel`, and what `explain` says of a move."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from click.testing import Result
from framework.fake_kube import FakeKube, failure
from framework.machines import ALL, at, condition, event, facts, pod, vmi

from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.moveview import MoveForecast, MoveProgress
from virt_core.apis.movewords import line, steady_line, success
from virt_core.runtime.times import rfc3339
from virtctl.explain.moves import of_machine, standing_of, steps_of
from virtctl.explain.standing import standing
from virtctl.migrate import command, jobs
from virtctl.migrate.words import forecast_lines
from virtctl.progress import Progress

Run = Callable[..., Result]
SUB = "/apis/subresources.kubevirt.io/v1/namespaces/default"
JOBS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
MIB = 1 << 20


def job(phase: str = "Running", name: str = "move", **status: Any) -> Job:
    plain = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": rfc3339(at(0)),
            "labels": {"kubevirt.io/vmi-name": "guest"},
        },
        "spec": {"vmiName": "guest"},
        "status": {"phase": phase, **status},
    }
    return from_plain(plain, Job)


def stamped(*phases: str) -> list[dict[str, str]]:
    return [{"phase": each, "phaseTransitionTimestamp": rfc3339(at(n + 1))} for n, each in enumerate(phases)]


SEEN = MoveProgress(
    migration_uid="uid-move",
    mode="PreCopy",
    total_bytes=400 * MIB,
    processed_bytes=300 * MIB,
    remaining_bytes=100 * MIB,
    bytes_per_second=60 * MIB,
    dirty_bytes_per_second=10 * MIB,
)
MOVED = {"sourceNode": "node1", "targetNode": "node2", "startTimestamp": rfc3339(at(1)), "endTimestamp": rfc3339(at(4))}


class World:
    """A server on which a job comes through the given states, one a look."""

    def __init__(self, kube: FakeKube, *states: Job, progress: Sequence[MoveProgress] = (), body: bytes | None = None):
        self.kube, self.states, self.progress = kube, list(states), list(progress)
        self.body = body if body is not None else json.dumps(to_plain(job(""))).encode()
        self.options: Any = None
        kube.on_request = self._answer

    def _answer(self, method: str, path: str, _query: Any, body: Any) -> Any:
        if method == "PUT" and path == f"{SUB}/virtualmachines/guest/migrate":
            self.options = body
            return 202, self.body, {}
        if path.endswith("/migrationprogress"):
            if not self.progress:
                return failure(503, "", "not now")
            seen = self.progress.pop(0) if len(self.progress) > 1 else self.progress[0]
            return 200, json.dumps(to_plain(seen)).encode(), {}
        if method == "GET" and path == f"{JOBS}/move" and self.states:
            now = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return 200, json.dumps(to_plain(now)).encode(), {}
        return None


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_POLL_S", 0.001)
    monkeypatch.setattr(jobs, "_AGAIN_S", 0.001)


# -- migrate


def test_migrate_asks_for_it_and_returns(kube: FakeKube, run: Run) -> None:
    world = World(kube)
    result = run("migrate", "guest", "--addedNodeSelector", "zone=a,disk=ssd", "--addedNodeSelector=x=")
    assert result.exit_code == 0, result.output
    assert result.output == "VM guest was scheduled to migrate\n"
    assert world.options == {"addedNodeSelector": {"zone": "a", "disk": "ssd", "x": ""}}


@pytest.mark.parametrize("bad", ["zone", "=a", "zone=a,,"])
def test_a_selector_is_key_and_value(run: Run, bad: str) -> None:
    result = run("migrate", "guest", "--addedNodeSelector", bad)
    assert result.exit_code == 1
    assert "KEY=VALUE" in result.output


def test_a_refusal_says_why(kube: FakeKube, run: Run) -> None:
    kube.on_request = lambda method, *_: failure(409, "Conflict", "it has a device") if method == "PUT" else None
    result = run("migrate", "guest")
    assert result.exit_code == 1
    assert "it has a device" in result.output


def test_a_dry_run_tells_the_forecast(kube: FakeKube, run: Run) -> None:
    forecast = MoveForecast(
        verdict="WillNotConverge",
        message="will not converge: 9 MiB/s are written, 1 MiB/s can be moved; allow post-copy",
        memory_bytes=100 * MIB,
        disk_bytes=5 * MIB,
        dirty_bytes_per_second=9 * MIB,
        bandwidth_bytes_per_second=MIB,
        bandwidth_configured=True,
    )
    world = World(kube, body=json.dumps(to_plain(forecast)).encode())
    result = run("migrate", "guest", "--dry-run")
    assert result.exit_code == 0, result.output
    assert world.options == {"dryRun": ["All"]}
    assert result.output.splitlines() == [
        "VM guest was scheduled to migrate (dry run: nothing was changed)",
        "forecast: will not converge: 9 MiB/s are written, 1 MiB/s can be moved; allow post-copy",
        "  to move:   100.0 MiB of memory, 5.0 MiB of disks in the Pod",
        "  written:   9.0 MiB/s by the guest",
        "  speed:     1.0 MiB/s (bandwidthPerMigration)",
    ]


def test_a_server_without_forecasts_is_no_mistake(kube: FakeKube, run: Run) -> None:
    World(kube, body=b"")
    assert run("migrate", "guest", "--dry-run").output.count("\n") == 1


def test_an_expectation_is_told() -> None:
    found = MoveForecast(
        verdict="Converges", message="fine", memory_bytes=MIB, expected_seconds=2.5, expected_downtime_milliseconds=80
    )
    assert forecast_lines(found)[-1] == "  expected:  2.5 s, guest stands still for 80 ms"


def test_wait_tells_each_step_once_and_the_end(kube: FakeKube, run: Run) -> None:
    running = job(migrationState=MOVED)
    # The target is faster to say that it is over than the source.
    ended = msgspec.structs.replace(SEEN, ended=True, elapsed_seconds=2.5, downtime_milliseconds=42)
    World(kube, job(""), job("Pending"), job("Pending"), running, running, job("Succeeded", migrationState=MOVED),
          progress=[SEEN, SEEN, SEEN, ended])  # fmt: skip
    result = run("migrate", "guest", "--wait")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "VM guest was scheduled to migrate",
        "New: virt-controller has not seen the migration yet",
        "Pending: it waits for its turn: only so many machines move at once",
        "Running node1 -> node2: 70 %",
        "VM guest: it was migrated from node1 to node2 in 2.5 s; the guest stood still for 42 ms",
    ]


def test_wait_does_not_insist_on_the_last_figures(kube: FakeKube, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "LAST_FIGURES_WITHIN_S", 0.01)
    World(kube, job("Succeeded", migrationState=MOVED), progress=[SEEN])
    result = run("migrate", "guest", "--wait")
    assert (result.exit_code, result.output.splitlines()[-1]) == (
        0,
        "VM guest: it was migrated from node1 to node2 in 3.0 s",
    )


def test_wait_fails_with_the_reason_of_the_move(kube: FakeKube, run: Run) -> None:
    World(kube, job("Failed", migrationState={"failureReason": "the target Pod is gone"}))
    result = run("migrate", "guest", "--wait")
    assert result.exit_code == 1
    assert "migration move of VM guest failed: the target Pod is gone" in result.output


def test_wait_ends_when_its_time_is_over(kube: FakeKube, run: Run) -> None:
    World(kube, job("Pending"))
    result = run("migrate", "guest", "--wait", "--timeout", "0")
    assert result.exit_code == 1
    assert "is not over after 0 min: Pending" in result.output


def test_wait_sees_that_somebody_deleted_the_job(kube: FakeKube, run: Run) -> None:
    World(kube)
    result = run("migrate", "guest", "--wait")
    assert result.exit_code == 1
    assert "somebody has deleted it" in result.output


def test_the_job_of_a_server_that_does_not_name_it_is_found(kube: FakeKube, run: Run) -> None:
    for found in (job("Succeeded", "old"), job("Succeeded", migrationState=MOVED)):
        kube.put(f"{JOBS}/{found.metadata.name}", to_plain(found))
    World(kube, job("Succeeded", migrationState=MOVED), body=b"")
    assert "was migrated" in run("migrate", "guest", "--wait").output


def test_on_a_terminal_the_line_has_every_figure() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    with Progress(screen) as shown:
        shown.update(line(job(migrationState=MOVED), SEEN))
    assert "Running node1 -> node2: 75 %, 100.0 MiB left, 60.0 MiB/s moved" in screen.getvalue()
    assert line(job(), SEEN).endswith("10.0 MiB/s written, about 2 s to go")
    stuck = MoveProgress(
        total_bytes=4, processed_bytes=2, remaining_bytes=2, bytes_per_second=1, dirty_bytes_per_second=2
    )
    assert "no end in sight" in line(job(), stuck)
    begun = MoveProgress(total_bytes=4, remaining_bytes=4)
    assert line(job(), begun).endswith("0 B/s moved, 0 B/s written, how fast it goes is not known yet")
    later = MoveProgress(mode="PostCopy", total_bytes=4, processed_bytes=2, remaining_bytes=2)
    assert line(job(), later).startswith("Running (post-copy)")
    assert steady_line(job(), SEEN) == "Running: 70 %"


def test_the_pause_of_the_guest_is_told_when_it_is_known() -> None:
    ended = MoveProgress(ended=True, elapsed_seconds=1.25, downtime_milliseconds=42)
    told = success(job("Succeeded", migrationState=MOVED), ended)
    assert told == "it was migrated from node1 to node2 in 1.2 s; the guest stood still for 42 ms"


# -- migrate-cancel


def test_cancel_deletes_the_job_that_is_under_way(kube: FakeKube, run: Run) -> None:
    for found in (job("Succeeded", "old"), job("Running"), job("Failed", "zz")):
        kube.put(f"{JOBS}/{found.metadata.name}", to_plain(found))
    result = run("migrate-cancel", "guest", "--dry-run")
    assert "nothing was changed" in result.output
    assert kube.requests[-1][:3] == ("DELETE", f"{JOBS}/move", {"dryRun": "All"})
    kube.put(f"{JOBS}/move", to_plain(job("Running")))
    result = run("migrate-cancel", "guest")
    assert (result.exit_code, result.output) == (0, "VM guest was canceled migration\n")
    assert kube.requests[-1][:3] == ("DELETE", f"{JOBS}/move", {})
    assert kube.requests[-1][3]["preconditions"] == {"uid": "uid-move"}


def test_there_may_be_nothing_to_cancel(kube: FakeKube, run: Run) -> None:
    kube.put(f"{JOBS}/old", to_plain(job("Failed", "old")))
    result = run("migrate-cancel", "guest")
    assert result.exit_code == 1
    assert "no migration of VM default/guest is under way" in result.output


# -- explain


def machine(**status: Any) -> Any:
    return vmi("Running", ALL, nodeName="node1", **status)


def test_a_machine_on_its_way_is_told_of() -> None:
    state = {"migrationUid": "uid-move", "sourceNode": "node1", "targetNode": "node2"}
    found = standing(facts(machine(migrationState=state), job=job(), progress=SEEN))
    assert "Running on node1" in found.sentence
    assert "Migration move is under way: the machine is being moved from node1 to node2: 75 %" in found.sentence


def test_a_move_that_failed_is_told_with_its_reason_and_one_that_went_well_is_not() -> None:
    why = {"failureReason": "the move made no progress for 150 s"}
    over = job("Failed", migrationState=why, phaseTransitionTimestamps=stamped("Pending", "Failed"))
    assert of_machine(facts(machine(), 32, job=over)) == (
        " Its last move (vmim move), 30 s ago, failed: the move made no progress for 150 s."
    )
    assert of_machine(facts(machine(), job=job("Succeeded"))) == ""
    assert of_machine(facts(machine())) == ""


def test_a_migration_that_waits_for_a_node_says_what_the_scheduler_says() -> None:
    refused = pod("Pending", "", conditions=[condition("PodScheduled", "False", "Unschedulable", "0/2 nodes fit")])
    found = standing_of(facts(machine(), job=job("Scheduling"), pods=[refused]))
    assert found.sentence == (
        "The target does not start: no node accepts its Pod virt-launcher-guest-abc: 0/2 nodes fit."
    )


def test_a_migration_tells_its_forecast_and_that_it_is_given_up() -> None:
    told = condition("migrationForecast", "False", "WillNotConverge", "will not converge: 9 MiB/s are written")
    going = job(conditions=[told])
    going.metadata.deletion_timestamp = rfc3339(at(3))
    sentence = standing_of(facts(machine(), job=going, progress=SEEN)).sentence
    assert "It is being given up" in sentence
    assert sentence.endswith("Forecast: will not converge: 9 MiB/s are written.")


def test_a_held_guest_is_explained() -> None:
    held = MoveProgress(migration_uid="uid-move", held=True)
    assert "stands still until it is known where it runs" in of_machine(facts(machine(), job=job(), progress=held))


def test_a_guest_with_memory_on_both_sides_is_explained() -> None:
    split = MoveProgress(migration_uid="uid-move", mode="PostCopy", total_bytes=9, reason="the way was lost")
    assert "the way was lost." in of_machine(facts(machine(), job=job(), progress=split))


def test_the_phases_are_rows_with_their_times() -> None:
    rows = steps_of(job(phaseTransitionTimestamps=stamped("Pending", "Scheduling", "Scheduled")), at(9))
    assert [(row.name, row.took_s, row.at_s) for row in rows] == [
        ("Pending", 1.0, 1.0), ("Scheduling", 1.0, 2.0), ("Scheduled", 1.0, 3.0),
    ]  # fmt: skip
    assert all(row.owner and row.title for row in rows)


def test_explain_vmim(kube: FakeKube, run: Run) -> None:
    state = {**MOVED, "failureReason": "the target launcher cannot be used"}
    failed = job("Failed", migrationState=state, phaseTransitionTimestamps=stamped("Pending", "Failed"))
    kube.put(f"{JOBS}/move", to_plain(failed))
    kube.put("/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/guest", to_plain(machine()))
    note = event("VirtualMachineInstanceMigration", "FailedMigration", "the target launcher cannot be used", seconds=2)
    kube.put("/api/v1/namespaces/default/events/e1", to_plain(note))
    result = run("explain", "vmim", "move")
    assert result.exit_code == 0, result.output
    assert "VirtualMachineInstanceMigration default/move: Failed" in result.output
    assert "It Failed: the target launcher cannot be used. The guest goes on at node1." in result.output
    assert "Next: virtctl explain vmi guest -n default" in result.output
    assert run("explain", "vmim", "move", "--wait").exit_code == 1
    missing = run("explain", "vmim", "none")
    assert missing.exit_code == 1
    assert "kubectl get vmim -n default" in missing.output


def test_a_migration_that_waits_for_its_turn_says_why() -> None:
    told = condition("migrationWaiting", "True", "Waiting", "2 machines are leaving node node1, and no more may")
    waits = job("Pending", conditions=[told], phaseTransitionTimestamps=stamped("Pending"))
    assert standing_of(facts(machine(), 13, job=waits)).sentence == (
        "It waits for its turn (2 machines are leaving node node1, and no more may) and has done so for 12 s."
    )


def test_a_job_without_room_in_the_quota_says_so() -> None:
    told = condition("migrationRejectedByResourceQuota", "True", "", "exceeded quota: small, used: cpu=1")
    found = standing_of(facts(machine(), job=job("Pending", conditions=[told])))
    words = "Its target Pod does not fit into the namespace's quota (exceeded quota: small, used: cpu=1), and it waits"
    assert found.sentence.startswith(words)
    assert "quota" not in standing_of(facts(machine(), job=job("Running", conditions=[told]))).sentence
