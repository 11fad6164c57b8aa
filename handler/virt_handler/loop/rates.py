"""How often a launcher may send something."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from virt_core.runtime.clock import Clock


class TokenBucket:
    """`burst` at once, `per_second` in the long run."""

    def __init__(self, clock: Clock, *, burst: int, per_second: float) -> None:
        self._clock = clock
        self._burst = float(burst)
        self._rate = per_second
        self._tokens = float(burst)
        self._stamp = clock.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            if self._refilled() < 1.0:
                return False
            self._tokens -= 1.0
            return True

    def left(self) -> float:
        with self._lock:
            return self._refilled()

    def spend(self, amount: float) -> None:
        """For one who has looked at what is `left`."""
        with self._lock:
            self._tokens = self._refilled() - amount

    def _refilled(self) -> float:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._stamp) * self._rate)
        self._stamp = now
        return self._tokens


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one launcher. A healthy one sends a handful of messages in its life."""

    domain_burst: int = 40
    domain_per_second: float = 1.0
    event_burst: int = 20
    event_per_second: float = 0.1
