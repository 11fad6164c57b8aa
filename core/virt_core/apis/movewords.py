"""A move in words. Pure: job and figures in, one line out."""

from __future__ import annotations

from datetime import datetime

from virt_core.apis import names
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.moveview import MoveProgress
from virt_core.apis.quantity import readable as size

#: What each phase waits for.
WAITS = {
    "": "virt-controller has not seen the migration yet",
    names.MIGRATION_PENDING: "it waits for its turn: only so many machines move at once",
    names.MIGRATION_SCHEDULING: "it waits for the target's Pod",
    names.MIGRATION_SCHEDULED: "the target's Pod runs",
    names.MIGRATION_PREPARING_TARGET: "the target makes ready",
    names.MIGRATION_TARGET_READY: "the target is ready",
    names.MIGRATION_RUNNING: "the machine is being moved",
}
_STEP = 10


def line(job: Job, seen: MoveProgress | None) -> str:
    """For a terminal, where it is written over and over."""
    where, phase = _way(job), job.status.phase
    if phase != names.MIGRATION_RUNNING or seen is None or seen.percent is None:
        return f"{phase or 'New'}{where}: {WAITS.get(phase, 'it is over')}"
    return f"{_mode(seen)}{where}: {figures(seen)}"


def steady_line(job: Job, seen: MoveProgress | None) -> str:
    """For a file: it changes only when there is something new to read."""
    if job.status.phase == names.MIGRATION_RUNNING and seen is not None and seen.percent is not None:
        return f"{_mode(seen)}{_way(job)}: {int(seen.percent) // _STEP * _STEP} %"
    return line(job, None)


def figures(seen: MoveProgress) -> str:
    """`45 %, 120.0 MiB left, 80.0 MiB/s moved, 3.0 MiB/s written, about 2 s to go`."""
    return (
        f"{seen.percent or 0:.0f} %, {size(seen.remaining_bytes)} left, {size(seen.bytes_per_second)}/s moved, "
        f"{size(seen.dirty_bytes_per_second)}/s written, {_end(seen)}"
    )


def _end(seen: MoveProgress) -> str:
    if seen.mode == "PostCopy":
        return "it runs at the target already"
    if not seen.bytes_per_second:
        return "how fast it goes is not known yet"
    left = seen.seconds_left
    return f"about {left:.0f} s to go" if left is not None else "no end in sight: it writes as fast as it is moved"


def _mode(seen: MoveProgress) -> str:
    return {"PostCopy": "Running (post-copy)", "Paused": "Running (guest paused)"}.get(seen.mode, "Running")


def _way(job: Job) -> str:
    state = job.status.migration_state
    return f" {state.source_node} -> {state.target_node}" if state is not None and state.target_node else ""


def success(job: Job, seen: MoveProgress | None) -> str:
    state = job.status.migration_state
    stood = (
        f"; the guest stood still for {seen.downtime_milliseconds} ms" if seen and seen.downtime_milliseconds else ""
    )
    if state is None:
        return f"it was migrated{stood}"
    took = (
        seen.elapsed_seconds
        if seen is not None and seen.ended
        else _seconds(state.start_timestamp, state.end_timestamp)
    )
    return f"it was migrated from {state.source_node} to {state.target_node} in {took:.1f} s{stood}"


def failure(job: Job) -> str:
    """Why it failed, as far as anybody has said."""
    state = job.status.migration_state
    return (state.failure_reason if state is not None else "") or "nobody has said why"


def _seconds(start: str | None, end: str | None) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() if start and end else 0.0
