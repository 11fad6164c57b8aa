"""Moves as metrics: how many are in which phase, when each began and ended, and what became of it.

The names and labels are those that people's dashboards know. What is finished is kept for five jobs a machine, so there
are no more rows than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from virt_core.apis import names
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState as MoveState
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.metrics import Family, Histogram
from virt_core.runtime.times import parse_rfc3339

PREFIX = "kubevirt_vmi_"
_MINUTE = 60.0
#: Seconds, from half a one to an hour.
BUCKETS = (0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 90, *(_MINUTE * m for m in (2, 3, 5, 10, 20, 30, 60)))

PHASE_TIME = Histogram(
    f"{PREFIX}migration_phase_transition_time_from_creation_seconds",
    "How long after its creation a migration reached a phase.",
    ("phase",),
    BUCKETS,
)

#: The gauge under which each phase counts; a move that has a target counts as one that runs.
_UNSET, _PENDING, _SCHEDULING, _RUNNING = "unset", "pending", "scheduling", "running"
_COUNTED = {
    "": _UNSET,
    names.MIGRATION_PENDING: _PENDING,
    names.MIGRATION_SCHEDULING: _SCHEDULING,
    names.MIGRATION_SCHEDULED: _RUNNING,
    names.MIGRATION_PREPARING_TARGET: _RUNNING,
    names.MIGRATION_TARGET_READY: _RUNNING,
    names.MIGRATION_RUNNING: _RUNNING,
}
_GAUGES = (_UNSET, _PENDING, _SCHEDULING, _RUNNING)
_OF_A_JOB = ("vmi", "vmim", "namespace")
_OF_A_MOVE = ("node", "namespace", "name", "migration_name")


class Jobs(Protocol):
    def list(self) -> list[Job]: ...


class Vmis(Protocol):
    def list(self) -> list[VirtualMachineInstance]: ...


class MoveFigures:
    """For the registry of metrics; only the leader has anything to tell."""

    def __init__(self, jobs: Jobs, vmis: Vmis) -> None:
        self._jobs, self._vmis = jobs, vmis

    def collect(self) -> list[Family]:
        jobs = self._jobs.list()
        return [*_phases(jobs), *_outcomes(jobs), *_times(self._vmis.list(), {j.metadata.uid: j for j in jobs})]


def observe(before: Job, after: Job) -> None:
    """A job reached a phase: how long that took since it was made."""
    if before.status.phase == after.status.phase or not after.metadata.creation_timestamp:
        return
    known = {stamp.phase for stamp in before.status.phase_transition_timestamps}
    made = parse_rfc3339(after.metadata.creation_timestamp)
    for stamp in after.status.phase_transition_timestamps:
        if stamp.phase not in known and stamp.phase_transition_timestamp:
            PHASE_TIME.observe((parse_rfc3339(stamp.phase_transition_timestamp) - made).total_seconds(), stamp.phase)


def _phases(jobs: Iterable[Job]) -> list[Family]:
    counts = Counter(_COUNTED.get(job.status.phase, "") for job in jobs)
    return [
        Family(f"{PREFIX}migrations_in_{each}_phase", f"Migrations that are {each}.", "gauge", (), [((), counts[each])])
        for each in _GAUGES
    ]


def _outcomes(jobs: Iterable[Job]) -> list[Family]:
    rows = [(job.status.phase, (job.spec.vmi_name, job.metadata.name, job.metadata.namespace)) for job in jobs]
    return [
        Family(
            f"{PREFIX}migration_{phase.lower()}",
            f"1 for each migration that has {phase.lower()}.",
            "gauge",
            _OF_A_JOB,
            [(labels, 1.0) for found, labels in rows if found == phase],
        )
        for phase in (names.MIGRATION_SUCCEEDED, names.MIGRATION_FAILED)
    ]


def _times(vmis: Iterable[VirtualMachineInstance], jobs: dict[str, Job]) -> list[Family]:
    starts: list[tuple[tuple[str, ...], float]] = []
    ends: list[tuple[tuple[str, ...], float]] = []
    for vmi in vmis:
        move = vmi.status.migration_state
        job = jobs.get(move.migration_uid) if move is not None else None
        if move is None or job is None:
            continue
        labels = (vmi.status.node_name, vmi.metadata.namespace, vmi.metadata.name, job.metadata.name)
        if move.start_timestamp:
            starts.append((labels, parse_rfc3339(move.start_timestamp).timestamp()))
        if move.end_timestamp:
            ends.append(((*labels, _outcome(move)), parse_rfc3339(move.end_timestamp).timestamp()))
    prefix = f"{PREFIX}migration"
    return [
        Family(f"{prefix}_start_time_seconds", "When the last migration of a VMI began.", "gauge", _OF_A_MOVE, starts),
        Family(f"{prefix}_end_time_seconds", "When it ended.", "gauge", (*_OF_A_MOVE, "status"), ends),
    ]


def _outcome(move: MoveState) -> str:
    return ("failed" if move.failed else "succeeded") if move.completed else ""
