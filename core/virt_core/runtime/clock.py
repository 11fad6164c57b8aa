"""Time as an argument, so that a test of a ten-minute back-off takes no time.

Code that waits takes a Clock. `wait_on` is for code that holds a Condition (the work queue); `wait` is for code that
has only a stop Event.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

#: How often a waiter on the fake clock looks at its Event. Real time, tests only.
_FAKE_POLL_S = 0.002


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Waits until the event is set or the time is over; says whether it is set."""
        ...

    def wait_on(self, condition: threading.Condition, timeout_s: float | None) -> None:
        """Waits for a notify on a condition that the caller holds, or until the time is over."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(seconds, 0.0))

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(max(timeout_s, 0.0))

    def wait_on(self, condition: threading.Condition, timeout_s: float | None) -> None:
        condition.wait(timeout_s)


class FakeClock:
    """Stands still until `step`. Waiters in other threads wake when their time has come."""

    def __init__(self, now: datetime | None = None) -> None:
        self._now = now or datetime(2026, 1, 1, tzinfo=UTC)
        self._monotonic = 1000.0
        self._lock = threading.Lock()
        self._waiters: list[threading.Condition] = []
        self._deadlines: list[float] = []

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def step(self, seconds: float) -> None:
        with self._lock:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds
            waiters = list(self._waiters)
        for condition in waiters:
            with condition:
                condition.notify_all()

    def sleep(self, seconds: float) -> None:
        """Nobody else moves the time of a single-threaded test, so sleeping does."""
        self.step(max(seconds, 0.0))

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        with self._lock:
            deadline = self._monotonic + timeout_s
            self._deadlines.append(deadline)
        try:
            while not event.wait(_FAKE_POLL_S):
                if self.monotonic() >= deadline:
                    return event.is_set()
            return True
        finally:
            with self._lock:
                self._deadlines.remove(deadline)

    def wait_on(self, condition: threading.Condition, timeout_s: float | None) -> None:
        # Registered before the time is read: a step in between then finds the waiter and notifies it.
        with self._lock:
            self._waiters.append(condition)
        try:
            if timeout_s is None or timeout_s > 0:
                condition.wait()
        finally:
            with self._lock:
                self._waiters.remove(condition)

    def waiters(self) -> int:
        """How many threads wait now: lets a test step only when its subject waits. One whose time has come does not,
        even if a busy machine has not let it run yet."""
        with self._lock:
            return len(self._waiters) + sum(deadline > self._monotonic for deadline in self._deadlines)
