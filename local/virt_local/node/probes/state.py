"""What the probes of a container have found so far. It only counts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from virt_core.apis.pods import Container, Probe


@dataclass(frozen=True)
class Verdict:
    """As the status shows it."""

    started: bool = True
    ready: bool = True


@dataclass
class Counter:
    """Successes and failures in a row, against the probe's thresholds."""

    successes: int = 0
    failures: int = 0

    def note(self, success: bool) -> None:
        self.successes = self.successes + 1 if success else 0
        self.failures = 0 if success else self.failures + 1

    def passed(self, probe: Probe) -> bool:
        return self.successes >= max(probe.success_threshold, 1)

    def failed(self, probe: Probe) -> bool:
        return self.failures >= (probe.failure_threshold or 3)


@dataclass
class ProbeState:
    """One run of a container. `unhealthy` carries why it must be stopped."""

    started: bool
    ready: bool
    unhealthy: str = ""
    counters: dict[str, Counter] = field(default_factory=dict)

    def note(self, kind: str, probe: Probe, success: bool, message: str) -> bool:
        """Takes a result in; says whether the verdict changed."""
        before = (self.started, self.ready, self.unhealthy)
        counter = self.counters.setdefault(kind, Counter())
        counter.note(success)
        if kind == "startup" and counter.passed(probe):
            self.started = True
        elif kind == "readiness":
            self.ready = True if counter.passed(probe) else False if counter.failed(probe) else self.ready
        if kind in ("startup", "liveness") and counter.failed(probe):
            self.unhealthy = f"{kind} probe failed: {message}"
        return before != (self.started, self.ready, self.unhealthy)


class ProbeBoard:
    """The states of all containers, by container id."""

    def __init__(self) -> None:
        self._states: dict[str, ProbeState] = {}
        self._lock = threading.Lock()

    def begin(self, container_id: str, container: Container, *, ready: bool = False) -> None:
        """`ready`: what was reported before we restarted, so that an adopted container does not flap."""
        with self._lock:
            self._states.setdefault(
                container_id,
                ProbeState(
                    started=container.startup_probe is None or ready,
                    ready=container.readiness_probe is None or ready,
                ),
            )

    def end(self, container_id: str) -> None:
        with self._lock:
            self._states.pop(container_id, None)

    def get(self, container_id: str, container: Container) -> Verdict:
        with self._lock:
            state = self._states.get(container_id)
            if state is not None:
                return Verdict(state.started, state.ready)
        return Verdict(container.startup_probe is None, container.readiness_probe is None)

    def started(self, container_id: str) -> bool:
        with self._lock:
            state = self._states.get(container_id)
            return state is not None and state.started

    def unhealthy(self, container_id: str) -> str:
        with self._lock:
            state = self._states.get(container_id)
            return state.unhealthy if state is not None else ""

    def note(self, container_id: str, kind: str, probe: Probe, *, success: bool, message: str) -> bool:
        with self._lock:
            state = self._states.get(container_id)
            return state is not None and state.note(kind, probe, success, message)
