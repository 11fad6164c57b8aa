"""Jobs that nobody asked for by hand: how they look, and how long they wait after failures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from virt_core.apis import names
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.migration import VirtualMachineInstanceMigrationSpec as JobSpec
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.times import parse_rfc3339

_AUTOMATIC = frozenset({names.ANNOTATION_EVACUATION, names.ANNOTATION_WORKLOAD_UPDATE})
_FIRST_WAIT_S = 20.0
_DOUBLINGS = 4


def new_job(vmi: VirtualMachineInstance, prefix: str, annotations: Mapping[str, str], priority: str) -> Job:
    return Job(
        metadata=ObjectMeta(generate_name=prefix, namespace=vmi.metadata.namespace, annotations=dict(annotations)),
        spec=JobSpec(vmi_name=vmi.metadata.name, priority=priority),
    )


def is_unfinished(job: Job) -> bool:
    return job.status.phase not in names.FINAL_PHASES


def failures(jobs: Iterable[Job]) -> list[datetime]:
    """The ends of those that have failed since the last that succeeded, newest first."""
    ends = sorted(((when, job) for job in jobs if (when := _end(job)) is not None), key=lambda each: each[0])
    found: list[datetime] = []
    for when, job in reversed(ends):
        if job.status.phase == names.MIGRATION_SUCCEEDED:
            break
        found.append(when)
    return found


def last_success(jobs: Iterable[Job]) -> datetime | None:
    ends = (_end(job) for job in jobs if job.status.phase == names.MIGRATION_SUCCEEDED)
    return max((when for when in ends if when is not None), default=None)


def wait_s(jobs: Iterable[Job], now: datetime | None = None) -> float:
    """How long to wait after these before the next one, from now on; without `now` from the last failure on."""
    failed = failures(jobs)
    if not failed:
        return 0.0
    pause_s = _FIRST_WAIT_S * (1 << min(len(failed) - 1, _DOUBLINGS))
    return max(pause_s - (now - failed[0]).total_seconds(), 0.0) if now is not None else pause_s


def backoff_s(job: Job, others: Iterable[Job], now: datetime) -> float:
    """How long a job must wait because earlier ones of its VMI failed; 0: it need not, or somebody asked for it."""
    if not _AUTOMATIC & job.metadata.annotations.keys():
        return 0.0
    return wait_s((each for each in others if each.metadata.uid != job.metadata.uid), now)


def _end(job: Job) -> datetime | None:
    stamps = (
        each.phase_transition_timestamp
        for each in job.status.phase_transition_timestamps
        if each.phase == job.status.phase
    )
    when = next(stamps, None) if job.status.phase in names.FINAL_PHASES else None
    return parse_rfc3339(when) if when else None
