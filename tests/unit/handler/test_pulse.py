"""A launcher is given up only for a silence of its own: never because we, or the machine, were away or busy."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from framework.vmis import handed_over

from virt_core.apis import names
from virt_core.apis.podroles import Role
from virt_core.runtime.clock import FakeClock
from virt_handler.decisions import status, steps
from virt_handler.decisions.silence import Verdict
from virt_handler.decisions.vocabulary import Action, Launcher, View
from virt_handler.loop import pulse
from virt_handler.loop.pulse import Pulse, Schedule
from virt_protos.launcher.v1 import launcher_pb2 as pb

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
RUNNING = pb.Domain(state=pb.DOMAIN_STATE_RUNNING)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def miss(beat: Pulse, clock: FakeClock, took_s: float = pulse.PING_DEADLINE_S, after: Schedule | None = None) -> None:
    """One round as the watchdog does it: waits until a ping is due, sends it, gets no answer."""
    clock.step(beat.wait_s())
    call = beat.began(Schedule())
    clock.step(took_s)
    beat.missed(call, after or Schedule())


def rounds_until(beat: Pulse, clock: FakeClock, wanted: Verdict, at_most: int = 20) -> float:
    started = clock.monotonic()
    for _ in range(at_most):
        miss(beat, clock)
        if beat.verdict() is wanted:
            return clock.monotonic() - started
    raise AssertionError(f"not {wanted} after {at_most} misses")


def test_nobody_is_asked_who_spoke_a_moment_ago(clock: FakeClock) -> None:
    beat = Pulse(clock)
    clock.step(9)
    beat.beat()
    assert beat.wait_s() == pulse.PING_EVERY_S


def test_silence_is_doubted_then_believed(clock: FakeClock) -> None:
    beat = Pulse(clock)
    assert 30 <= rounds_until(beat, clock, Verdict.DOUBTFUL) <= 45
    assert 20 <= rounds_until(beat, clock, Verdict.LOST) <= 45


def test_one_answer_clears_all_doubt(clock: FakeClock) -> None:
    beat = Pulse(clock)
    rounds_until(beat, clock, Verdict.DOUBTFUL)
    beat.beat()
    assert (beat.verdict(), beat.silent_s()) == (Verdict.FINE, 0.0)


def test_late_news_of_a_call_that_was_overtaken_count_nothing(clock: FakeClock) -> None:
    beat = Pulse(clock)
    call = beat.began(Schedule())
    beat.beat()
    beat.missed(call, Schedule())
    assert beat.silent_s() == 0.0


@pytest.mark.parametrize(
    ("took_s", "after"),
    [
        pytest.param(60.0, Schedule(), id="we were late ourselves"),
        pytest.param(5.0, Schedule(waited_s=2.0), id="the launcher waited for a processor"),
        pytest.param(5.0, Schedule(on_disk=True), id="the launcher waited for a disk"),
    ],
)
def test_unfair_rounds_never_add_up(clock: FakeClock, took_s: float, after: Schedule) -> None:
    beat = Pulse(clock)
    for _ in range(100):
        miss(beat, clock, took_s, after)
    assert (beat.verdict(), beat.silent_s()) == (Verdict.FINE, 0.0)


def test_a_machine_that_slept_adds_nothing(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock stands still during a suspend, the wall clock does not."""
    beat = Pulse(clock)
    call = beat.began(Schedule())
    clock.step(5)
    later = clock.now() + timedelta(hours=8)
    monkeypatch.setattr(clock, "now", lambda: later)
    beat.missed(call, Schedule())
    assert beat.silent_s() == 0.0


def test_a_handler_that_did_not_ask_for_hours_counts_one_round_only(clock: FakeClock) -> None:
    beat = Pulse(clock)
    clock.step(3600)
    miss(beat, clock)
    assert beat.silent_s() <= pulse.PING_EVERY_S + pulse.PING_DEADLINE_S
    assert beat.verdict() is Verdict.FINE


def test_quick_refusals_do_not_outrun_the_time(clock: FakeClock) -> None:
    """A socket that refuses at once: sixty refusals in six seconds are six seconds."""
    beat = Pulse(clock)
    for _ in range(60):
        call = beat.began(Schedule())
        clock.step(0.1)
        beat.missed(call, Schedule())
    assert beat.verdict() is Verdict.FINE


def test_the_kernels_account_is_read() -> None:
    own = pulse.schedule_of(os.getpid())
    assert own.waited_s >= 0.0
    assert pulse.schedule_of(2**22 + 1) == Schedule()


def view(**changes: Any) -> View:
    return View(since=NOW, launcher=Launcher.READY, domain=RUNNING, **changes)


def test_doubt_is_a_condition_that_goes_away_again() -> None:
    doubtful = view(pulse=Verdict.DOUBTFUL, silent_s=33)
    vmi = handed_over("Running")
    step = steps.next_step(vmi, doubtful, NOW, Role.ACTIVE)
    assert step.end is None
    told = status.reported(vmi, doubtful, step, NOW)
    (condition,) = [c for c in told.status.conditions if c.type == names.CONDITION_SYNCHRONIZED]
    assert (condition.status, condition.reason) == ("False", "LauncherUnresponsive")
    assert status.notes(vmi, told)[0][0] == "Warning"
    again = status.reported(told, view(), steps.next_step(told, view(), NOW, Role.ACTIVE), NOW)
    assert not [c for c in again.status.conditions if c.type == names.CONDITION_SYNCHRONIZED]


def test_the_lost_launcher_is_ended_first_and_told_afterwards() -> None:
    """A VMI that is Failed must not have a guest that still writes to its disks."""
    vmi = handed_over("Running")
    lost = view(pulse=Verdict.LOST, silent_s=61)
    step = steps.next_step(vmi, lost, NOW, Role.ACTIVE)
    assert (step.action, step.end) == (Action.END_LAUNCHER, None)
    assert status.reported(vmi, lost, step, NOW) is vmi
    ended = View(since=NOW, launcher=Launcher.GONE, domain=RUNNING, pulse=Verdict.LOST, silent_s=61)
    end = steps.next_step(vmi, ended, NOW, Role.ACTIVE).end
    assert end is not None
    assert (end.reason, "61 s" in end.message) == ("LauncherUnresponsive", True)


def test_a_launcher_that_never_answered_this_handler_ends_the_vmi() -> None:
    silent = View(since=NOW, launcher=Launcher.WAITING, pulse=Verdict.LOST, silent_s=70)
    end = steps.next_step(handed_over("Running"), silent, NOW, Role.ACTIVE).end
    assert end is not None
    assert end.reason == "LauncherUnresponsive"
