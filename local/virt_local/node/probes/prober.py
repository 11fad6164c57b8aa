"""Runs probes when they are due: one thread keeps the calendar, a few others ask."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from virt_core.apis.pods import Container, Probe
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_local.node.probes import actions
from virt_local.node.probes.actions import Target
from virt_local.node.probes.state import ProbeBoard

log = get_logger(__name__)

DEFAULT_PERIOD_S = 10.0


@dataclass(order=True)
class _Entry:
    due: float
    number: int
    kind: str = field(compare=False)
    probe: Probe = field(compare=False)
    target: Target = field(compare=False)
    changed: Callable[[], None] = field(compare=False)


def probes_of(container: Container) -> list[tuple[str, Probe]]:
    pairs = (
        ("startup", container.startup_probe),
        ("liveness", container.liveness_probe),
        ("readiness", container.readiness_probe),
    )
    return [(kind, probe) for kind, probe in pairs if probe is not None]


class Prober:
    def __init__(
        self,
        board: ProbeBoard,
        executor: Executor,
        clock: Clock,
        run_probe: Callable[[Probe, Target], actions.Outcome] = actions.run,
    ) -> None:
        self._board = board
        self._executor = executor
        self._clock = clock
        self._run_probe = run_probe
        self._heap: list[_Entry] = []
        self._active: set[str] = set()
        self._numbers = itertools.count()
        self._condition = threading.Condition()

    def track(self, target: Target, changed: Callable[[], None], *, ready: bool = False) -> None:
        """Begins to probe a running container; `changed` is called whenever its verdict changes."""
        probes = probes_of(target.container)
        if not probes:
            return
        with self._condition:
            if target.container_id in self._active:
                return
            self._active.add(target.container_id)
            self._board.begin(target.container_id, target.container, ready=ready)
            now = self._clock.monotonic()
            for kind, probe in probes:
                due = now + probe.initial_delay_seconds
                heapq.heappush(self._heap, _Entry(due, next(self._numbers), kind, probe, target, changed))
            self._condition.notify()

    def untrack(self, container_id: str) -> None:
        with self._condition:
            self._active.discard(container_id)
        self._board.end(container_id)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with self._condition:
                entry = self._take_due()
                if entry is None:
                    self._clock.wait_on(self._condition, self._wait_s())
                    continue
            self._executor.submit(self._probe, entry)

    def wake(self) -> None:
        """Lets `run` look at its stop."""
        with self._condition:
            self._condition.notify_all()

    def _take_due(self) -> _Entry | None:
        if self._heap and self._heap[0].due <= self._clock.monotonic():
            return heapq.heappop(self._heap)
        return None

    def _wait_s(self) -> float:
        if not self._heap:
            return DEFAULT_PERIOD_S
        return max(self._heap[0].due - self._clock.monotonic(), 0.001)

    def _probe(self, entry: _Entry) -> None:
        try:
            self._ask(entry)
        except Exception:
            log.exception("a probe failed in an unexpected way", container=entry.target.container.name)
        finally:
            self._again(entry)

    def _ask(self, entry: _Entry) -> None:
        container_id = entry.target.container_id
        with self._condition:
            if container_id not in self._active:
                return
        started = self._board.started(container_id)
        if started == (entry.kind == "startup"):
            return  # Before the start only the startup probe asks, after it only the others.
        outcome = self._run_probe(entry.probe, entry.target)
        changed = self._board.note(
            container_id, entry.kind, entry.probe, success=outcome.success, message=outcome.message
        )
        if changed:
            entry.changed()

    def _again(self, entry: _Entry) -> None:
        with self._condition:
            if entry.target.container_id not in self._active:
                return
            entry.due = self._clock.monotonic() + float(entry.probe.period_seconds or DEFAULT_PERIOD_S)
            heapq.heappush(self._heap, entry)
            self._condition.notify()
