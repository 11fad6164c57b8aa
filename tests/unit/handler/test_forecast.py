"""What a move would take: rounds that get shorter, or that never do; and what the launcher is asked for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from virt_core.apis.moveview import CONVERGES, UNKNOWN, WILL_NOT, WITH_HELP
from virt_handler.decisions.forecast import Case, foresee
from virt_handler.moves.journal import MAX_MOVES, Journal
from virt_handler.service.forecasts import FRESH_S, Forecasts
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2 as pb

MIB = 1 << 20
IDLE = Case(memory=1024 * MIB, dirty=0, speed=100 * MIB)
BUSY = replace(IDLE, dirty=200 * MIB)


def test_an_idle_guest_takes_as_long_as_its_memory() -> None:
    found = foresee(IDLE)
    assert (found.verdict, round(found.seconds, 1)) == (CONVERGES, 10.2)
    assert found.downtime_s < 0.1


def test_what_is_written_meanwhile_is_sent_again() -> None:
    """With half the speed the rounds add up to twice the memory, less what fits into the pause."""
    found = foresee(replace(IDLE, dirty=50 * MIB))
    assert found.verdict == CONVERGES
    assert 19.0 < found.seconds < 20.6
    assert found.downtime_s <= 0.3 + 0.05


def test_a_guest_stands_still_for_as_long_as_those_before_it() -> None:
    assert foresee(replace(IDLE, usual_downtime_s=0.4)).downtime_s == 0.4
    assert foresee(replace(IDLE, usual_downtime_s=0.01)).downtime_s == foresee(IDLE).downtime_s


def test_disks_in_the_pod_are_moved_too() -> None:
    assert round(foresee(replace(IDLE, disks=1024 * MIB)).seconds, 1) == 20.5


def test_a_longer_pause_ends_it_earlier() -> None:
    half = replace(IDLE, dirty=50 * MIB)
    assert foresee(replace(half, max_downtime_s=5.0)).seconds < foresee(half).seconds


def test_a_guest_that_writes_faster_than_the_way_carries_does_not_converge() -> None:
    found = foresee(BUSY)
    assert found.verdict == WILL_NOT
    assert found.message == (
        "will not converge: 200 MiB/s are written, 100 MiB/s can be moved; allow post-copy, auto-converge or a pause"
    )
    assert (found.seconds, found.downtime_s) == (0, 0)


def test_memory_that_fits_into_the_pause_converges_whatever_is_written() -> None:
    assert foresee(replace(BUSY, memory=10 * MIB)).verdict == CONVERGES


@pytest.mark.parametrize(
    ("allowed", "words", "downtime_s"),
    [
        ({"auto_converge": True}, "slowed down", 0),
        ({"disruption": True, "post_copy": True}, "post-copy", 0.05),
        ({"disruption": True}, "paused for 10 s", 10.29),
    ],
)
def test_what_may_be_done_about_it(allowed: dict[str, bool], words: str, downtime_s: float) -> None:
    found = foresee(replace(BUSY, timeout_per_gb=150, **allowed))  # type: ignore[arg-type]
    assert found.verdict == WITH_HELP
    assert words in found.message
    assert found.downtime_s == pytest.approx(downtime_s, abs=0.01)


def test_help_that_never_comes_is_none() -> None:
    """Without a deadline nobody would ever pause the guest."""
    assert foresee(replace(BUSY, disruption=True, timeout_per_gb=0)).verdict == WILL_NOT


def test_an_unknown_way_is_said_to_be_unknown() -> None:
    found = foresee(replace(BUSY, speed=0))
    assert found.verdict == UNKNOWN
    assert "not known" in found.message


# -- the journal -------------------------------------------------------------------------------------------------------


def move(**changes: Any) -> launcher_pb2.Move:
    return launcher_pb2.Move(**{"uid": "job", "started_us": 1_000_000, **changes})


def test_the_best_of_the_last_moves_is_the_speed_of_the_way() -> None:
    journal = Journal()
    assert journal.speed() == 0
    journal.note("a", move(bytes_per_second=70 * MIB))
    assert journal.speed() == 0
    journal.note("a", move(bytes_per_second=5, ended_us=2_000_000, processed_bytes=50 * MIB))
    assert journal.speed() == 70 * MIB
    for number in range(8):
        journal.note("b", move(uid=f"b{number}", ended_us=3_000_000, processed_bytes=40 * MIB))
    assert journal.speed() == 20 * MIB


def test_the_usual_pause_is_neither_the_best_nor_the_worst() -> None:
    journal = Journal()
    assert journal.pause_ms() == 0
    over: dict[str, Any] = {"mode": "PreCopy", "ended_us": 2_000_000}
    for number, pause in enumerate((90, 5000, 100, 1 << 30)):
        journal.note("a", move(uid=f"a{number}", downtime_ms=pause, **over))
    journal.note("b", move(downtime_ms=1, **{**over, "mode": "PostCopy"}))
    journal.note("c", move(downtime_ms=1, failed=True, **over))
    assert journal.pause_ms() == 100


@pytest.mark.parametrize("end", [{"failed": True, "processed_bytes": 50 * MIB}, {"processed_bytes": 100}])
def test_a_move_that_failed_or_had_nothing_to_send_says_nothing_of_the_way(end: dict[str, Any]) -> None:
    journal = Journal()
    journal.note("a", move(bytes_per_second=1, ended_us=2_000_000, **end))
    assert journal.speed() == 0
    assert journal.of("a") is not None


def test_an_end_is_not_undone_by_late_news() -> None:
    journal = Journal()
    journal.note("a", move(ended_us=2_000_000, downtime_ms=40))
    journal.note("a", move(remaining_bytes=5))
    found = journal.of("a", "job")
    assert found is not None
    assert found.downtime_ms == 40
    assert journal.of("a", "other") is None


def test_only_so_many_are_remembered() -> None:
    journal = Journal()
    for number in range(MAX_MOVES + 1):
        journal.note(str(number), move())
    assert (journal.of("0"), journal.of("1")) == (None, move())


# -- asking ------------------------------------------------------------------------------------------------------------


class FakeLauncher:
    def __init__(self, stats: object, rate: int) -> None:
        self._stats, self.rate, self.measured = json.dumps(stats).encode(), rate, 0

    def get_stats(self) -> bytes:
        return self._stats

    def get_dirty_rate(self) -> int:
        self.measured += 1
        return self.rate


DOMAIN = launcher_pb2.Domain(memory_bytes=512 * MIB, disk_targets={"root": "vda", "data": "vdb"})
STATS = {
    "memory": {"rss": 100 * 1024},
    "block": [
        {"name": "vda", "backingIndex": 1, "allocation": 30 * MIB},
        {"name": "vda", "backingIndex": 2, "allocation": 900 * MIB},
        {"name": "vdb", "allocation": 7 * MIB},
    ],
}


def request(**changes: Any) -> pb.ForecastMoveRequest:
    ref = pb.VMIRef(namespace="ns", name="vm", uid="u")
    return pb.ForecastMoveRequest(vmi=ref, **{"copied_volumes": ["root", "unknown"], **changes})


def test_the_figures_are_what_is_resident_and_what_the_overlay_holds() -> None:
    found = Forecasts(Journal()).make(FakeLauncher(STATS, 3 * MIB), DOMAIN, request())  # type: ignore[arg-type]
    assert (found.memory_bytes, found.disk_bytes) == (100 * MIB, 30 * MIB)
    assert (found.dirty_bytes_per_second, found.convergence) == (3 * MIB, pb.CONVERGENCE_UNKNOWN)


@pytest.mark.parametrize("stats", [{}, {"memory": 5, "block": {}}, {"memory": {"rss": "x"}, "block": [1, {"name": 5}]}])
def test_a_launcher_that_makes_things_up_breaks_nothing(stats: object) -> None:
    found = Forecasts(Journal()).make(FakeLauncher(stats, 0), DOMAIN, request())  # type: ignore[arg-type]
    assert (found.memory_bytes, found.disk_bytes) == (512 * MIB, 0)


def test_the_limit_counts_unless_the_way_is_slower() -> None:
    journal = Journal()
    journal.note("a", move(bytes_per_second=70 * MIB, ended_us=2_000_000, processed_bytes=50 * MIB))
    launcher: Any = FakeLauncher(STATS, 0)
    for limit, speed, configured in ((0, 70, False), (10 * MIB, 10, True), (900 * MIB, 70, False)):
        found = Forecasts(journal).make(launcher, DOMAIN, request(bandwidth_limit=limit))
        assert (found.bandwidth_bytes_per_second, found.bandwidth_configured) == (speed * MIB, configured)


def test_a_guest_is_measured_once_in_a_while_however_often_somebody_asks() -> None:
    now = [0.0]
    forecasts, launcher = Forecasts(Journal(), lambda: now[0]), FakeLauncher(STATS, 5)
    for _ in range(20):
        forecasts.make(launcher, DOMAIN, request())  # type: ignore[arg-type]
    assert launcher.measured == 1
    now[0] += FRESH_S + 1
    forecasts.make(launcher, DOMAIN, request())  # type: ignore[arg-type]
    assert launcher.measured == 2
