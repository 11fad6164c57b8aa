"""Counting probe results, and when they are asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from virt_core.apis.base import from_plain
from virt_core.apis.pods import Container, Probe
from virt_core.runtime.clock import FakeClock
from virt_local.node.probes.actions import Outcome, Target, port_of, run
from virt_local.node.probes.prober import Prober
from virt_local.node.probes.state import ProbeBoard, ProbeState


def container(**probes: Any) -> Container:
    ports = [{"name": "web", "containerPort": 80}]
    return from_plain({"name": "c", "ports": ports, **probes}, Container)


def probe(**fields: Any) -> Probe:
    return from_plain({"exec": {"command": ["x"]}, **fields}, Probe)


def test_readiness_needs_its_thresholds() -> None:
    state, wish = ProbeState(started=True, ready=False), probe(successThreshold=2, failureThreshold=2)
    assert not state.note("readiness", wish, True, "")
    assert state.note("readiness", wish, True, "")
    assert state.ready
    assert not state.note("readiness", wish, False, "")
    assert state.note("readiness", wish, False, "")
    assert not state.ready


def test_liveness_fails_only_in_a_row() -> None:
    state, wish = ProbeState(started=True, ready=True), probe()
    for success in (False, False, True, False, False):
        state.note("liveness", wish, success, "no answer")
        assert not state.unhealthy
    state.note("liveness", wish, False, "no answer")
    assert state.unhealthy == "liveness probe failed: no answer"


def test_ports_by_name_and_number() -> None:
    assert (port_of(container(), "web"), port_of(container(), 81), port_of(container(), "82")) == (80, 81, 82)


def test_an_unknown_port_and_an_empty_probe_fail_with_a_reason() -> None:
    target = Target(container(), "id", "127.0.0.1", lambda command: command)
    outcome = run(from_plain({"tcpSocket": {"port": "nope"}}, Probe), target)
    assert (outcome.success, outcome.message) == (False, "container 'c' has no port named 'nope'")
    assert not run(Probe(), target).success


def test_exec_outcomes() -> None:
    target = Target(container(), "id", "", lambda command: command)
    assert run(from_plain({"exec": {"command": ["true"]}}, Probe), target).success
    failed = run(from_plain({"exec": {"command": ["sh", "-c", "echo why; exit 2"]}}, Probe), target)
    assert failed == Outcome(False, "why")


class Direct(Executor):
    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        fn(*args, **kwargs)
        self.asked.release()
        return Future()


def test_the_calendar() -> None:
    """Startup first, the others after it; each again after its period; nothing after the end."""
    clock, board, executor = FakeClock(), ProbeBoard(), Direct()
    asked: list[str] = []
    changes: list[int] = []

    def ask(wish: Probe, _: Target) -> Outcome:
        asked.append(wish.exec_.command[0] if wish.exec_ else "")
        return Outcome(True)

    prober = Prober(board, executor, clock, ask)
    subject = container(
        startupProbe={"exec": {"command": ["startup"]}, "periodSeconds": 5},
        readinessProbe={"exec": {"command": ["readiness"]}, "periodSeconds": 7},
    )
    target = Target(subject, "id", "", lambda command: command)
    stop = threading.Event()
    thread = threading.Thread(target=prober.run, args=(stop,))
    thread.start()
    try:
        prober.track(target, lambda: changes.append(1))
        for _ in range(2):
            assert executor.asked.acquire(timeout=5)
        assert asked == ["startup", "readiness"]
        verdict = board.get("id", subject)
        assert (verdict.started, verdict.ready) == (True, True)
        assert len(changes) == 2
        prober.untrack("id")
        clock.step(100)
        for _ in range(2):
            executor.asked.acquire(timeout=0.05)
        assert asked == ["startup", "readiness"]
    finally:
        stop.set()
        prober.wake()
        thread.join(5)
    assert not thread.is_alive()


def test_an_adopted_container_starts_from_what_was_known() -> None:
    board = ProbeBoard()
    subject = container(readinessProbe={"exec": {"command": ["x"]}}, startupProbe={"exec": {"command": ["x"]}})
    board.begin("id", subject, ready=True)
    verdict = board.get("id", subject)
    assert (verdict.started, verdict.ready) == (True, True)
    assert board.get("other", subject).ready is False
