"""Where the time of one piece of work went: named steps with their durations, for one log line or one report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from virt_core.runtime.clock import Clock, SystemClock


class Trace:
    """`with trace.step("define domain"): …` then `log.info("synced", **trace.fields())`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._started = self._clock.monotonic()
        self.steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begin = self._clock.monotonic()
        try:
            yield
        finally:
            self.steps.append((name, self._clock.monotonic() - begin))

    def total_s(self) -> float:
        return self._clock.monotonic() - self._started

    def fields(self) -> dict[str, float]:
        """Milliseconds by step, and the total."""
        fields = {f"{name.replace(' ', '_')}_ms": round(seconds * 1000, 1) for name, seconds in self.steps}
        return {**fields, "total_ms": round(self.total_s() * 1000, 1)}
