"""Every thread of a process belongs to one Supervisor: it has a name, and when it dies, the process ends.

A process that lost one of its threads looks alive and does half its work; one that ends is restarted. Stop hooks run in
the reverse order of their registration, as with nested `with` statements.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

ThreadBody = Callable[[threading.Event], object]


class Supervisor:
    def __init__(self, name: str = "", *, grace_s: float = 20.0) -> None:
        self.name = name
        self.stop = threading.Event()
        self._grace_s = grace_s
        self._threads: list[threading.Thread] = []
        self._hooks: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._started = False
        self._exit_code = 0
        self._signals = 0
        self._stopping = False
        # The main thread sleeps on this pipe. A signal handler must not touch an Event: if it interrupts the wait on
        # that very Event, its lock is already held and the process hangs.
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def thread(self, name: str, body: ThreadBody, *, may_end: bool = False) -> None:
        """Runs `body(stop)`. Its end before the stop ends the process, unless it may end (an exception always does)."""
        thread = threading.Thread(target=self._guard, args=(name, body, may_end), name=name, daemon=True)
        with self._lock:
            self._threads.append(thread)
            started = self._started
        if started:
            thread.start()

    def on_stop(self, hook: Callable[[], object]) -> None:
        with self._lock:
            self._hooks.append(hook)

    def request_stop(self, exit_code: int = 0) -> None:
        """Begins the stop. Safe from any thread, and more than once; the highest exit code wins."""
        self._exit_code = max(self._exit_code, exit_code)
        self._wake()

    def run(self, *, signals: bool = True) -> int:
        """Blocks until a signal, a dead thread or `request_stop`; then stops everything and returns the exit code."""
        if signals:
            # Without a wake-up descriptor a signal that comes just before `select` would be noticed only after it.
            signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
        with self._lock:
            self._started = True
            threads = list(self._threads)
        for thread in threads:
            thread.start()
        while not self._stopping:
            select.select([self._wake_r], [], [])
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_r, 64)
        self.stop.set()
        deadline = time.monotonic() + self._grace_s
        self._run_hooks(deadline)
        self._join(deadline)
        log.info("stopped", exit_code=self._exit_code)
        return self._exit_code

    def run_and_exit(self) -> NoReturn:
        """`run`, then the end of the process even if a library's thread still hangs somewhere."""
        code = self.run()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def _guard(self, name: str, body: ThreadBody, may_end: bool) -> None:
        try:
            body(self.stop)
        except BaseException:
            log.exception("a thread died, so the process ends", thread=name)
            self.request_stop(1)
            return
        if not may_end and not self.stop.is_set():
            log.error("a thread ended before its time, so the process ends", thread=name)
            self.request_stop(1)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 2:
            os._exit(128 + number)
        self._wake()

    def _wake(self) -> None:
        self._stopping = True
        try:
            os.write(self._wake_w, b"x")
        except BlockingIOError:
            pass  # The pipe is full, so the sleeper is awake already.

    def _run_hooks(self, deadline: float) -> None:
        """In a thread, so that a hook that hangs costs the grace and not the end."""
        runner = threading.Thread(target=self._each_hook, name="stop-hooks", daemon=True)
        runner.start()
        runner.join(max(deadline - time.monotonic(), 0.0))
        if runner.is_alive():
            log.error("stop hooks did not end in time", grace_s=self._grace_s)
            self._exit_code = max(self._exit_code, 1)

    def _each_hook(self) -> None:
        with self._lock:
            hooks, self._hooks = self._hooks[::-1], []
        for hook in hooks:
            try:
                hook()
            except Exception:
                log.exception("a stop hook failed")
                self._exit_code = max(self._exit_code, 1)

    def _join(self, deadline: float) -> None:
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))
        if stuck := [t.name for t in threads if t.is_alive()]:
            log.error("threads did not stop in time", threads=stuck, grace_s=self._grace_s)
            self._exit_code = max(self._exit_code, 1)
