"""Bounds on what a guest or its launcher may send: how often, how much, how long."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from virt_core.runtime.clock import Clock

#: A domain message with ten interfaces is below 4 KiB.
MAX_NOTIFY_BYTES = 256 * 1024
MAX_INTERFACES = 64
#: What a guest agent can do; there are some fifty commands.
MAX_COMMANDS = 128
MAX_GUEST_ONLY_INTERFACES = 10
MAX_ADDRESSES = 32
#: Reasons for a restart; the first ones are reason enough.
MAX_NEEDS = 8
MAX_WORD = 253
MAX_TEXT = 1024


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
            now = self._clock.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._stamp) * self._rate)
            self._stamp = now
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
            return True


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one launcher. A healthy one sends a handful of messages in its life."""

    domain_burst: int = 40
    domain_per_second: float = 5.0
    event_burst: int = 20
    event_per_second: float = 0.1


def clip(text: str, limit: int = MAX_TEXT) -> str:
    """Text from a guest, without control characters and of bounded length."""
    clean = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
