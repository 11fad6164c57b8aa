"""Where a process spends its time: the stacks of all its threads, looked at again and again.

Sampling costs the process nothing while nobody asks for it and one or two percent while somebody does; it stops by
itself, since whoever started it may have gone home. The result is text, one line for each stack with its count, as
flame graph tools read it.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from types import FrameType

INTERVAL_S = 0.01
#: The longest that anybody can mean to measure.
MAX_S = 600.0
_MAX_STACKS = 20000
_MAX_DEPTH = 64
_OTHERS = "(others)"


class Profiler:
    """Thread safe. A new start forgets what was measured before."""

    def __init__(self, interval_s: float = INTERVAL_S, max_s: float = MAX_S) -> None:
        self._interval_s, self._rounds = interval_s, int(max_s / interval_s)
        self._lock = threading.Lock()
        self._stacks: Counter[str] = Counter()
        self._stop: threading.Event | None = None

    @property
    def running(self) -> bool:
        return self._stop is not None

    def start(self) -> None:
        """Goes on where one runs already."""
        with self._lock:
            if self._stop is not None:
                return
            self._stacks, self._stop = Counter(), threading.Event()
            threading.Thread(target=self._run, args=(self._stop,), name="profiler", daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            stop, self._stop = self._stop, None
        if stop is not None:
            stop.set()

    def dump(self) -> str:
        """What was measured up to now; empty when nothing was."""
        with self._lock:
            counted = self._stacks.most_common()
        return "".join(f"{stack} {count}\n" for stack, count in counted)

    def _run(self, stop: threading.Event) -> None:
        own = threading.get_ident()
        for _ in range(self._rounds):
            if stop.wait(self._interval_s):
                return
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            frames = sys._current_frames()
            seen = [f"{names.get(ident, '?')};{_words(frame)}" for ident, frame in frames.items() if ident != own]
            del frames  # They would keep the locals of every thread alive until the next look.
            self._count(seen)
        with self._lock:
            if self._stop is stop:
                self._stop = None

    def _count(self, seen: list[str]) -> None:
        with self._lock:
            for stack in seen:
                known = stack in self._stacks or len(self._stacks) < _MAX_STACKS
                self._stacks[stack if known else _OTHERS] += 1


def _words(frame: FrameType | None) -> str:
    """From the outermost call to the innermost, without the values of anything."""
    calls: list[str] = []
    while frame is not None and len(calls) < _MAX_DEPTH:
        calls.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return ";".join(reversed(calls))
