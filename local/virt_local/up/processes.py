"""Starts the components as processes and keeps them running: one loop over their pidfds, with back-off.

A component runs in its own session and outlives us if we are killed: guests must not notice, and the next `up` finds
it by its record and replaces it.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from virt_core.runtime.logs import get_logger
from virt_core.runtime.procs import ProcessGone, ProcessId
from virt_local.up.state import ProcessBook

log = get_logger("virt-local.up")

FIRST_DELAY_S = 0.2
MAX_DELAY_S = 10.0
HEALTHY_AFTER_S = 30.0
STOP_S = 15.0
_MAX_LOG_BYTES = 20 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Component:
    """A program to keep running. `netns` is the path of the network namespace that it lives in."""

    name: str
    command: tuple[str, ...]
    netns: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def argv(self) -> list[str]:
        return ["nsenter", f"--net={self.netns}", "--", *self.command] if self.netns else list(self.command)


@dataclass(slots=True)
class Backoff:
    """How long to wait before the next start: doubling, and forgotten after a healthy run."""

    delay_s: float = 0.0

    def after(self, ran_s: float) -> float:
        if ran_s >= HEALTHY_AFTER_S or self.delay_s == 0.0:
            self.delay_s = FIRST_DELAY_S
        else:
            self.delay_s = min(self.delay_s * 2, MAX_DELAY_S)
        return self.delay_s


@dataclass(slots=True)
class _Child:
    component: Component
    backoff: Backoff = field(default_factory=Backoff)
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    started: float = 0.0
    due: float | None = None
    restarts: int = 0
    last_exit: str = ""


@dataclass(frozen=True, slots=True)
class ChildState:
    """What `status` shows of a component."""

    name: str
    pid: int
    restarts: int
    last_exit: str


class ProcessTable:
    """Thread safe: `start` may be called from anywhere, the loop belongs to the thread that calls `run`."""

    def __init__(self, book: ProcessBook, log_file: Callable[[str], Path]) -> None:
        self._book = book
        self._log_file = log_file
        self._children: dict[str, _Child] = {}
        self._lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        self._stopping = False

    def start(self, component: Component) -> None:
        with self._lock:
            if self._stopping:
                raise RuntimeError("the components are being stopped")
            child = self._children[component.name] = _Child(component)
            self._spawn(child)
        self.wake()

    def states(self) -> list[ChildState]:
        with self._lock:
            return [
                ChildState(name, child.process.pid if child.process else 0, child.restarts, child.last_exit)
                for name, child in self._children.items()
            ]

    def run(self, stop: threading.Event) -> None:
        """Restarts what dies until the stop. Whoever sets the stop calls `stop_all`, which wakes us."""
        while not stop.is_set():
            for key, _ in self._selector.select(self._timeout()):
                if key.fd == self._wake_r:
                    os.read(self._wake_r, 4096)
                else:
                    self._ended(key.data)
            self._restart_due()

    def stop_all(self, last: str, deadline_s: float = STOP_S) -> None:
        """Stops everything at once, and `last` after the others, for they want to say goodbye to it."""
        with self._lock:
            self._stopping = True
            children = list(self._children.values())
        self.wake()
        _stop_children([child for child in children if child.component.name != last], deadline_s)
        _stop_children([child for child in children if child.component.name == last], deadline_s)
        for child in children:
            self._book.remove(child.component.name)

    def _spawn(self, child: _Child) -> None:
        name = child.component.name
        with open_log(self._log_file(name)) as output:
            child.process = subprocess.Popen(
                child.component.argv(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **child.component.environment},
                start_new_session=True,
                cwd="/",
            )
        self._book.add(name, child.process.pid, child.restarts)
        child.pidfd = os.pidfd_open(child.process.pid)
        child.started, child.due = time.monotonic(), None
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)

    def _ended(self, child: _Child) -> None:
        with self._lock:
            self._selector.unregister(child.pidfd)
            os.close(child.pidfd)
            child.pidfd = -1
            code = child.process.wait() if child.process else 0
            child.process = None
            ran = time.monotonic() - child.started
            child.last_exit = exit_text(code)
            if self._stopping:
                return
            delay = child.backoff.after(ran)
            child.due, child.restarts = time.monotonic() + delay, child.restarts + 1
            log.warning("a component ended", which=child.component.name, how=child.last_exit, restart_in_s=delay)

    def _restart_due(self) -> None:
        with self._lock:
            for child in self._children.values():
                if child.due is not None and child.due <= time.monotonic() and not self._stopping:
                    self._try_spawn(child)

    def _try_spawn(self, child: _Child) -> None:
        try:
            self._spawn(child)
        except OSError as err:
            child.last_exit = str(err)
            child.due = time.monotonic() + child.backoff.after(0.0)
            log.error("a component could not be started", which=child.component.name, error=str(err))

    def _timeout(self) -> float | None:
        with self._lock:
            due = [child.due for child in self._children.values() if child.due is not None]
        return max(min(due) - time.monotonic(), 0.0) if due else None

    def wake(self) -> None:
        try:
            os.write(self._wake_w, b"x")
        except BlockingIOError:
            pass  # It will wake up anyway.


def _stop_children(children: list[_Child], deadline_s: float) -> None:
    """SIGTERM, a deadline for all of them together, SIGKILL."""
    processes = [child.process for child in children if child.process is not None]
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + deadline_s
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            log.warning("a component did not stop in time and was killed", pid=process.pid)
            process.kill()
            process.wait(5)


def stop_processes(processes: Mapping[str, ProcessId], deadline_s: float = STOP_S) -> None:
    """Stops processes that are not our children: those of a supervisor that was killed."""
    for process in processes.values():
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + deadline_s
    for process in processes.values():
        if not process.wait(max(deadline - time.monotonic(), 0.1)):
            _signal(process, signal.SIGKILL)
            process.wait(5.0)


def _signal(process: ProcessId, number: int) -> None:
    try:
        process.signal(number)
    except ProcessGone:
        return


def open_log(path: Path) -> BinaryIO:
    """Appends; a log that has grown large steps aside once."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "ab")


def exit_text(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
