"""Whether a launcher that is alive still answers. Counts only the silence that is the launcher's own.

A miss is held against the launcher when it had every chance: we were awake for the whole call, and it neither waited
for a processor nor for a disk. A machine that was suspended or overloaded, or a virt-handler that was, adds nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from virt_core.runtime.clock import Clock
from virt_handler.decisions.silence import DOUBT_AFTER_S, LOST_AFTER_S, Verdict

PING_EVERY_S = 10.0
PING_DEADLINE_S = 5.0
#: So many calls in a row must have failed, however the seconds came together.
LOST_MISSES = 5

#: A call that ended this much after its deadline says that we were late, not the launcher.
_SLACK_S = 2.0
#: Of the seconds of a call: a process that waited longer for a processor had no fair chance.
_STARVED_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the kernel says about a process: seconds in which it waited for a processor, and whether a disk holds it."""

    waited_s: float = 0.0
    on_disk: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call under way: when it began, on both clocks, and how the launcher stood then."""

    started: float
    wall: datetime
    schedule: Schedule


def schedule_of(pid: int, proc: str = "/proc") -> Schedule:
    """Sums over the threads; a process that has ended has none."""
    waited_ns, on_disk = 0, False
    for task in Path(proc, str(pid), "task").glob("*"):
        try:
            waited_ns += int((task / "schedstat").read_text().split()[1])
            on_disk |= (task / "stat").read_text().rpartition(")")[2].split()[0] == "D"
        except (FileNotFoundError, ProcessLookupError, IndexError):
            continue
    return Schedule(waited_ns / 1e9, on_disk)


class Pulse:
    """Of one launcher. Calls end in several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Until when the silence has been counted, and when to ask next.
        self._counted = clock.monotonic()
        self._next = self._counted + PING_EVERY_S
        self._silent_s = 0.0
        self._misses = 0
        self._call: Call | None = None

    def beat(self) -> None:
        """The launcher has answered a call of ours."""
        with self._lock:
            self._counted = self._clock.monotonic()
            self._next = self._counted + PING_EVERY_S
            self._silent_s, self._misses, self._call = 0.0, 0, None

    def wait_s(self) -> float:
        """Seconds until the next ping is due; 0: now."""
        with self._lock:
            if self._call is not None:
                return PING_EVERY_S
            return max(self._next - self._clock.monotonic(), 0.0)

    def began(self, schedule: Schedule) -> Call:
        with self._lock:
            self._call = Call(self._clock.monotonic(), self._clock.now(), schedule)
            self._next = self._call.started + PING_EVERY_S
            return self._call

    def missed(self, call: Call, schedule: Schedule) -> None:
        """The call ended without an answer. One that another answer has overtaken says nothing."""
        with self._lock:
            if self._call is not call:
                return
            self._call = None
            now = self._clock.monotonic()
            if self._is_fair(call, schedule, now - call.started):
                self._silent_s += min(now - self._counted, PING_EVERY_S + PING_DEADLINE_S)
                self._misses += 1
            self._counted = now

    def _is_fair(self, call: Call, schedule: Schedule, took_s: float) -> bool:
        # The wall clock goes on while a machine sleeps; a clock that was set also ends here, and costs one ping.
        wall_s = (self._clock.now() - call.wall).total_seconds()
        awake = took_s <= PING_DEADLINE_S + _SLACK_S and abs(wall_s - took_s) <= _SLACK_S
        starved_s = schedule.waited_s - call.schedule.waited_s
        return awake and not schedule.on_disk and starved_s <= _STARVED_SHARE * PING_DEADLINE_S

    def silent_s(self) -> float:
        with self._lock:
            return self._silent_s

    def verdict(self) -> Verdict:
        with self._lock:
            if self._silent_s >= LOST_AFTER_S and self._misses >= LOST_MISSES:
                return Verdict.LOST
            return Verdict.DOUBTFUL if self._silent_s >= DOUBT_AFTER_S else Verdict.FINE
