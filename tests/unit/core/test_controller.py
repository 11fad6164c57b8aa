"""The controller loop: what each outcome of a reconciliation leads to."""

from __future__ import annotations

import threading

import pytest
from framework.waiting import eventually, no_leaked_threads, running

from virt_core.kube.controller import Controller, Result, TerminalError
from virt_core.kube.errors import Conflict, Unreachable
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock


class Harness:
    """A controller whose reconcile does as told, one outcome after the other."""

    def __init__(self, *outcomes: object) -> None:
        self.clock = FakeClock()
        self.queue = WorkQueue(self.clock, base_delay_s=1.0)
        self.outcomes = list(outcomes)
        self.controller = Controller("test", self.queue, self.reconcile)

    def reconcile(self, key: str) -> Result | None:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        assert outcome is None or isinstance(outcome, Result)
        return outcome

    def run_once(self) -> None:
        key = self.queue.get(0)
        assert key is not None
        self.controller.process(key)

    def due_after(self, seconds: float) -> bool:
        self.clock.step(seconds - 0.01)
        assert self.queue.get(0) is None, "came too early"
        self.clock.step(0.02)
        key = self.queue.get(0)
        if key:
            self.queue.done(key)
        return key is not None


def test_success_is_done() -> None:
    harness = Harness(None)
    harness.queue.add("a")
    harness.run_once()
    assert harness.queue.get(0) is None


def test_result_asks_for_another_time() -> None:
    harness = Harness(Result(requeue_after_s=30))
    harness.queue.add("a")
    harness.run_once()
    assert harness.due_after(30)


@pytest.mark.parametrize("error", [RuntimeError("x"), Conflict(409, "Conflict", "x"), Unreachable("x")])
def test_an_error_is_tried_again_later_and_later(error: Exception) -> None:
    harness = Harness(error, error)
    harness.queue.add("a")
    harness.run_once()
    assert harness.due_after(1)
    harness.queue.add("a")
    harness.run_once()
    assert harness.due_after(2)


def test_success_resets_the_delay() -> None:
    harness = Harness(RuntimeError("x"), None, RuntimeError("x"))
    for _ in range(3):
        harness.queue.add("a")
        harness.run_once()
    assert harness.queue.failures("a") == 1


def test_terminal_error_is_not_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    harness = Harness(TerminalError("no such image"))
    harness.queue.add("a")
    harness.run_once()
    harness.clock.step(1000)
    assert harness.queue.get(0) is None
    assert "no such image" in capsys.readouterr().err


def test_conflict_makes_no_noise(capsys: pytest.CaptureFixture[str]) -> None:
    harness = Harness(Conflict(409, "Conflict", "changed"))
    harness.queue.add("a")
    harness.run_once()
    assert capsys.readouterr().err == ""


class NotSynced:
    synced = False

    def has_synced(self) -> bool:
        return self.synced


def test_works_only_after_its_informers_have_synced_and_leaves_no_thread() -> None:
    informer, queue, seen = NotSynced(), WorkQueue(), list[str]()
    controller = Controller("test", queue, seen.append, workers=3, informers=[informer])
    queue.add("a")
    with no_leaked_threads(), running(controller.run):
        assert not seen
        informer.synced = True
        eventually(lambda: seen == ["a"])


def test_a_stop_while_waiting_for_informers_ends_it() -> None:
    controller = Controller("test", WorkQueue(), lambda _key: None, informers=[NotSynced()])
    with running(controller.run):
        pass


def test_a_dying_worker_ends_the_controller() -> None:
    """What is no Exception (SystemExit, a broken interpreter) must reach the supervisor."""

    def die(_key: str) -> None:
        raise SystemExit("dead")

    queue = WorkQueue()
    controller = Controller("test", queue, die, workers=2)
    queue.add("a")
    with pytest.raises(SystemExit, match="dead"):
        controller.run(threading.Event())
