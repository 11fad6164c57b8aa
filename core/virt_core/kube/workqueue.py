"""The queue between informers and workers: each key is queued once, and never worked on by two workers at once.

Three sets carry it: `dirty` has every key that needs work, `processing` every key in a worker's hands, and `queue` the
order of those that are dirty and not being processed. A key added while it is processed waits in `dirty` and is queued
again by `done`.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from itertools import count

from virt_core.runtime.clock import Clock, SystemClock

BASE_DELAY_S = 0.01
MAX_DELAY_S = 300.0


class WorkQueue:
    def __init__(
        self,
        clock: Clock | None = None,
        name: str = "",
        *,
        base_delay_s: float = BASE_DELAY_S,
        max_delay_s: float = MAX_DELAY_S,
    ) -> None:
        self.name = name
        self._clock = clock or SystemClock()
        self._base_delay_s, self._max_delay_s = base_delay_s, max_delay_s
        self._condition = threading.Condition()
        self._queue: deque[str] = deque()
        self._dirty: set[str] = set()
        self._processing: set[str] = set()
        self._failures: dict[str, int] = {}
        self._delayed: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._sequence = count()
        self._shutdown = False

    def add(self, key: str) -> None:
        with self._condition:
            self._add(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Adds the key later. A sooner time already set for it stays."""
        if seconds <= 0:
            self.add(key)
            return
        with self._condition:
            due = self._clock.monotonic() + seconds
            if self._shutdown or self._due.get(key, float("inf")) <= due:
                return
            self._due[key] = due
            heapq.heappush(self._delayed, (due, next(self._sequence), key))
            self._condition.notify()

    def add_rate_limited(self, key: str) -> None:
        """Adds the key after a delay that doubles with each call until `forget`."""
        with self._condition:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
        self.add_after(key, min(self._base_delay_s * 2.0 ** min(failures, 60), self._max_delay_s))

    def forget(self, key: str) -> None:
        """The key did well: its next failure starts with the shortest delay."""
        with self._condition:
            self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        with self._condition:
            return self._failures.get(key, 0)

    def get(self, timeout_s: float | None = None) -> str | None:
        """The next key; call `done` when finished with it. None: out of time, or the queue is shut down and empty."""
        with self._condition:
            deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
            while True:
                now = self._clock.monotonic()
                self._promote(now)
                if self._queue:
                    key = self._queue.popleft()
                    self._dirty.discard(key)
                    self._processing.add(key)
                    if self._queue or self._delayed:
                        # Somebody must wait for what is left, with the right deadline, while we work.
                        self._condition.notify()
                    return key
                if self._shutdown or (deadline is not None and now >= deadline):
                    return None
                self._clock.wait_on(self._condition, self._pause(now, deadline))

    def done(self, key: str) -> None:
        with self._condition:
            self._processing.discard(key)
            if key in self._dirty:
                self._queue.append(key)
            self._condition.notify_all()

    def shutdown(self) -> None:
        """Takes no more keys and forgets the delayed ones; what is queued is still handed out."""
        with self._condition:
            self._shutdown = True
            self._delayed.clear()
            self._due.clear()
            self._condition.notify_all()

    def is_shutdown(self) -> bool:
        with self._condition:
            return self._shutdown

    def __len__(self) -> int:
        with self._condition:
            return len(self._queue)

    def _add(self, key: str) -> None:
        if self._shutdown or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._queue.append(key)
            self._condition.notify()

    def _promote(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key = heapq.heappop(self._delayed)
            # An entry that was overtaken by a sooner one is stale.
            if self._due.get(key) == due:
                del self._due[key]
                self._add(key)

    def _pause(self, now: float, deadline: float | None) -> float | None:
        ends = [end for end in (deadline, self._delayed[0][0] if self._delayed else None) if end is not None]
        return max(min(ends) - now, 0.0) if ends else None
