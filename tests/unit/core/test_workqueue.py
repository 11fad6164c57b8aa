"""The work queue's promises, with a clock that stands still."""

from __future__ import annotations

import threading

from framework.waiting import eventually
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock


def make() -> tuple[WorkQueue, FakeClock]:
    clock = FakeClock()
    return WorkQueue(clock, "test", base_delay_s=1.0, max_delay_s=10.0), clock


def test_a_key_is_queued_once() -> None:
    queue, _ = make()
    queue.add("a")
    queue.add("b")
    queue.add("a")
    assert [queue.get(0), queue.get(0), queue.get(0)] == ["a", "b", None]


def test_a_key_added_while_processed_comes_back_after_done() -> None:
    """Two workers never hold the same key, and the change is not lost."""
    queue, _ = make()
    queue.add("a")
    assert queue.get(0) == "a"
    queue.add("a")
    assert queue.get(0) is None
    queue.done("a")
    assert queue.get(0) == "a"
    queue.done("a")
    assert queue.get(0) is None


def test_delays_follow_the_clock() -> None:
    queue, clock = make()
    queue.add_after("late", 10)
    queue.add_after("soon", 5)
    clock.step(4.9)
    assert queue.get(0) is None
    clock.step(0.2)
    assert queue.get(0) == "soon"
    clock.step(5)
    assert queue.get(0) == "late"


def test_the_sooner_of_two_delays_wins_and_the_key_comes_once() -> None:
    queue, clock = make()
    queue.add_after("a", 10)
    queue.add_after("a", 2)
    queue.add_after("a", 5)
    clock.step(3)
    assert queue.get(0) == "a"
    queue.done("a")
    clock.step(20)
    assert queue.get(0) is None


def test_failures_double_the_delay_up_to_the_limit_and_forget_resets() -> None:
    queue, clock = make()
    for delay in (1, 2, 4, 8, 10, 10):
        queue.add_rate_limited("a")
        clock.step(delay - 0.1)
        assert queue.get(0) is None
        clock.step(0.2)
        assert queue.get(0) == "a"
        queue.done("a")
    queue.forget("a")
    queue.add_rate_limited("a")
    clock.step(1.1)
    assert queue.get(0) == "a"


def test_a_thousand_failures_do_not_overflow() -> None:
    queue, _ = make()
    for _ in range(2000):
        queue.add_rate_limited("a")
    assert queue.failures("a") == 2000


def test_get_waits_for_an_add() -> None:
    queue, clock = make()
    got: list[str | None] = []
    thread = threading.Thread(target=lambda: got.append(queue.get()))
    thread.start()
    eventually(clock.waiters)
    queue.add("a")
    thread.join(5)
    assert got == ["a"]


def test_get_wakes_for_a_delayed_key_and_for_its_own_deadline() -> None:
    queue, clock = make()
    got: list[str | None] = []

    def worker() -> None:
        got.append(queue.get(60))
        got.append(queue.get(60))

    thread = threading.Thread(target=worker)
    thread.start()
    eventually(clock.waiters)
    queue.add_after("a", 30)
    clock.step(30)
    eventually(lambda: got == ["a"] and clock.waiters())
    clock.step(60)
    thread.join(5)
    assert got == ["a", None]


def test_another_worker_takes_over_the_wait_for_a_delayed_key() -> None:
    """The worker that knew of the delay is busy; the one that waits without limit must still wake in time."""
    queue, clock = make()
    got: list[str | None] = []
    first = threading.Thread(target=lambda: got.append(queue.get()))
    second = threading.Thread(target=lambda: got.append(queue.get()))
    first.start()
    eventually(lambda: clock.waiters() == 1)
    second.start()
    eventually(lambda: clock.waiters() == 2)
    queue.add_after("delayed", 5)
    queue.add("now")
    eventually(lambda: got == ["now"] and clock.waiters() == 1)
    clock.step(5)
    first.join(5)
    second.join(5)
    assert got == ["now", "delayed"]


def test_shutdown_hands_out_the_rest_and_takes_nothing_new() -> None:
    queue, clock = make()
    queue.add("a")
    queue.add_after("b", 1)
    queue.shutdown()
    queue.add("c")
    clock.step(5)
    assert [queue.get(), queue.get()] == ["a", None]


class QueueMachine(RuleBasedStateMachine):
    """Any mix of calls: no key is in two hands, and none that was added is lost."""

    keys = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.clock = make()
        self.held: list[str] = []
        self.dirty: set[str] = set()
        self.later: dict[str, float] = {}

    @rule(key=keys)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.dirty.add(key)

    @rule(key=keys, delay=st.integers(1, 9))
    def add_after(self, key: str, delay: int) -> None:
        self.queue.add_after(key, delay)
        at = self.clock.monotonic() + delay
        self.later[key] = min(self.later.get(key, at), at)

    @rule(seconds=st.integers(1, 5))
    def step(self, seconds: int) -> None:
        self.clock.step(seconds)

    @rule()
    def get(self) -> None:
        ripe = {k for k, at in self.later.items() if at <= self.clock.monotonic()}
        self.later = {k: at for k, at in self.later.items() if k not in ripe}
        self.dirty |= ripe
        due = self.dirty - set(self.held)
        key = self.queue.get(0)
        if key is None:
            assert not due
            return
        assert key in due
        assert key not in self.held
        self.held.append(key)
        self.dirty.discard(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.held))
        self.held.remove(key)
        self.queue.done(key)

    @invariant()
    def length_is_bounded(self) -> None:
        assert len(self.queue) <= 3


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
