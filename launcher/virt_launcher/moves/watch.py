"""When a move takes too long, and what is done then. Pure: figures in, a verdict out."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

_GB = 1_000_000_000

MODE_PRE_COPY = "PreCopy"
MODE_POST_COPY = "PostCopy"
MODE_PAUSED = "Paused"

#: The first pass leaves what an idle guest wrote meanwhile: it need not stand still for longer than that takes.
_FIRST_PAUSE_MS = 100
#: What QEMU allows by itself.
_USUAL_PAUSE_MS = 300
#: From this pass on a guest writes too fast for the pause that was allowed.
_BUSY_FROM_PASS = 3


class Verdict(enum.Enum):
    GO_ON = "go on"
    #: Let the guest run on the other side and fetch the rest of its memory from here.
    POST_COPY = "post-copy"
    #: Stop the guest, so that nothing more is written.
    PAUSE = "pause"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Limits:
    #: Seconds for all of it; 0: none.
    completion_s: float = 0.0
    #: Seconds without progress; 0: none.
    progress_s: float = 0.0
    post_copy: bool = False
    disruption: bool = False


@dataclass(frozen=True, slots=True)
class Course:
    """How it went so far. The next one follows from it, a look at the clock and one figure."""

    mode: str = MODE_PRE_COPY
    verdict: Verdict = Verdict.GO_ON
    #: For people: why the verdict is not GO_ON.
    reason: str = ""
    least_remaining: int | None = None
    progress_at: float = 0.0
    #: A guest that was paused for it gets as long again.
    completion_s: float = 0.0


def begin(limits: Limits) -> Course:
    return Course(completion_s=limits.completion_s)


def allowed_pause(most_ms: int, passes: int) -> int:
    """Milliseconds that the guest may stand still at the end: few at first, twice as many for each pass that was not
    the last, and `most_ms` at most (0: what is usual)."""
    doublings = min(max(passes - _BUSY_FROM_PASS + 1, 0), 32)
    return min(most_ms or _USUAL_PAUSE_MS, _FIRST_PAUSE_MS << doublings)


def completion_limit(per_gib_s: int, size_bytes: int) -> float:
    """Seconds for so many bytes, counted in whole decimal gigabytes as KubeVirt does."""
    return float(per_gib_s * max(-(-size_bytes // _GB), 1))


def follow(course: Course, limits: Limits, elapsed_s: float, remaining: int) -> Course:
    """The course after one more look, `elapsed_s` after the start."""
    if course.mode == MODE_POST_COPY:
        # The guest runs there already: to give up now would be to lose it.
        return replace(course, verdict=Verdict.GO_ON)
    course = _progress(course, elapsed_s, remaining)
    late = bool(course.completion_s) and elapsed_s > course.completion_s
    if late and limits.disruption and course.mode == MODE_PRE_COPY:
        return _hurry(course, limits)
    if limits.progress_s and elapsed_s - course.progress_at > limits.progress_s:
        text = f"the move made no progress for {limits.progress_s:.0f} s; {remaining} bytes were left"
        return replace(course, verdict=Verdict.ABORT, reason=text)
    if late:
        text = f"the move did not end within {course.completion_s:.0f} s; {remaining} bytes were left"
        return replace(course, verdict=Verdict.ABORT, reason=text)
    return replace(course, verdict=Verdict.GO_ON)


def _progress(course: Course, elapsed_s: float, remaining: int) -> Course:
    if course.least_remaining is not None and remaining >= course.least_remaining:
        return course
    return replace(course, least_remaining=remaining, progress_at=elapsed_s)


def _hurry(course: Course, limits: Limits) -> Course:
    if limits.post_copy:
        return replace(course, mode=MODE_POST_COPY, verdict=Verdict.POST_COPY)
    return replace(course, mode=MODE_PAUSED, verdict=Verdict.PAUSE, completion_s=course.completion_s * 2)
