"""The launcher's children, its own and the adopted ones.

The launcher is process 1 of its container: QEMU and whatever else libvirt daemonises end up as its children.
libvirt waits for such a process by looking whether its pid is gone, so an orphan that nobody reaps costs it many
seconds. One thread takes every signal and every dead child: children that we spawned learn their status from here
(nobody else may call wait), all others are reported as orphans, and that is how we know how QEMU ended.

Spawning is posix_spawn: gRPC's threads forbid fork.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from virt_core.runtime.logs import get_logger
from virt_core.runtime.record import record

log = get_logger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_WATCHED = frozenset({signal.SIGCHLD, *STOP_SIGNALS})
#: Python ignores these; a child must not inherit that.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
_PR_SET_CHILD_SUBREAPER = 36
#: How many statuses of ended strangers are remembered. QEMU's is asked for within seconds.
_REMEMBERED = 64


def block_signals() -> None:
    """Before the first thread starts: from now on signals wait for `Children`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)


@record(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    pid: int
    exit_code: int | None
    signal_number: int | None

    def describe(self, what: str) -> str:
        """One sentence: "QEMU was killed by signal 9 (SIGKILL)"."""
        if self.signal_number is None:
            return f"{what} exited with code {self.exit_code}"
        try:
            name = f" ({signal.Signals(self.signal_number).name})"
        except ValueError:
            name = ""
        return f"{what} was killed by signal {self.signal_number}{name}"

    @property
    def clean(self) -> bool:
        return self.exit_code == 0


def ended_from_status(pid: int, status: int) -> Ended:
    if os.WIFSIGNALED(status):
        return Ended(pid, None, os.WTERMSIG(status))
    return Ended(pid, os.WEXITSTATUS(status), None)


class Child:
    """A process that we spawned."""

    def __init__(self, pid: int, argv: Sequence[str]) -> None:
        self.pid = pid
        self.argv = tuple(argv)
        self.ended: Ended | None = None
        self._done = threading.Event()

    def wait(self, timeout_s: float) -> Ended | None:
        """How it ended, or None when it still runs after the time."""
        self._done.wait(timeout_s)
        return self.ended

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.ended is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass  # It ended just now.

    def _finish(self, ended: Ended) -> None:
        self.ended = ended
        self._done.set()


class Children:
    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._own: dict[int, Child] = {}
        self._strangers: OrderedDict[int, Ended] = OrderedDict()
        self._on_signal: Callable[[int], None] | None = None
        self._on_orphan: list[Callable[[Ended], None]] = []

    def adopt_orphans(self) -> None:
        """Also when we are not process 1 (tests, a shared process namespace)."""
        if os.getpid() != 1 and ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            log.warning("cannot become the reaper of orphans: QEMU's exit status will stay unknown")

    def on_signal(self, handler: Callable[[int], None]) -> None:
        self._on_signal = handler

    def on_orphan(self, handler: Callable[[Ended], None]) -> None:
        self._on_orphan.append(handler)

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], output: str = os.devnull) -> Child:
        """Starts a program with no input; its output is appended to a file."""
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        with self._lock:  # The reaper must not see the child's end before it knows the child.
            pid = os.posix_spawn(argv[0], list(argv), env, file_actions=actions, setsigmask=(), setsigdef=_RESTORED)
            child = self._own[pid] = Child(pid, argv)
        return child

    def status_of(self, pid: int, timeout_s: float) -> Ended | None:
        """How an adopted process ended; waits for its end."""
        with self._lock:
            self._lock.wait_for(lambda: pid in self._strangers, timeout_s)
            return self._strangers.get(pid)

    def run(self, stop: threading.Event) -> None:
        """The body of the thread that takes signals and reaps."""
        while not stop.is_set():
            info = signal.sigtimedwait(_WATCHED, 1.0)
            self.reap()
            if info is not None and info.si_signo in STOP_SIGNALS and self._on_signal is not None:
                self._on_signal(info.si_signo)

    def wake(self) -> None:
        """Lets the thread see a stop."""
        os.kill(os.getpid(), signal.SIGCHLD)

    def reap(self) -> None:
        for ended in self._collect():
            log.debug("an adopted process ended", pid=ended.pid, exit_code=ended.exit_code, signal=ended.signal_number)
            for handler in self._on_orphan:
                handler(ended)

    def _collect(self) -> list[Ended]:
        """Takes every dead child; returns those that were not ours."""
        orphans = []
        with self._lock:
            while (found := _wait_any()) is not None:
                child = self._own.pop(found.pid, None)
                if child is not None:
                    child._finish(found)
                    continue
                orphans.append(found)
                self._strangers[found.pid] = found
                if len(self._strangers) > _REMEMBERED:
                    self._strangers.popitem(last=False)
            self._lock.notify_all()
        return orphans


def _wait_any() -> Ended | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return ended_from_status(pid, status) if pid else None
