"""Which jobs may go now, in which order, and which that are over are kept. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from virt_controller.migration.jobs import is_unfinished
from virt_core.apis import names
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.kube.configvalues import MigrationLimits

#: Of each VMI, the newest of those that are over.
KEPT = 5
_QUOTA = "exceeded quota"
_RANK = {names.PRIORITY_CRITICAL: 3, names.PRIORITY_USER: 2, names.PRIORITY_MAINTENANCE: 1}

#: The node that a job's machine is on; empty when nobody knows.
NodeOf = Callable[[Job], str]


def is_going(job: Job) -> bool:
    """Has a target Pod, or will have one at once."""
    return is_unfinished(job) and job.status.phase not in ("", names.MIGRATION_PENDING)


def rank(job: Job) -> int:
    """What was asked for by hand goes before what can wait, and after what must be."""
    return _RANK.get(job.spec.priority or names.PRIORITY_USER, 0)


def crowd(job: Job, jobs: Iterable[Job], node_of: NodeOf, limits: MigrationLimits, waits: Callable[[Job], bool]) -> str:
    """Why a job must wait for others; empty when it need not. `waits`: those that could not begin anyway."""
    others = [each for each in jobs if each.metadata.uid != job.metadata.uid and is_unfinished(each)]
    going = [each for each in others if is_going(each)]
    node = node_of(job)
    leaving = [each for each in going if node_of(each) == node]
    if len(going) >= limits.parallel_per_cluster:
        return f"{len(going)} migrations run in the cluster, and no more than that may"
    if len(leaving) >= limits.parallel_outbound_per_node:
        return f"{len(leaving)} machines are leaving node {node}, and no more than that may"
    first = [each for each in others if not is_going(each) and rank(each) > rank(job) and not waits(each)]
    here = [each for each in first if node_of(each) == node]
    if len(going) + len(first) >= limits.parallel_per_cluster or (
        len(leaving) + len(here) >= limits.parallel_outbound_per_node
    ):
        return f"{first[0].metadata.name} goes first"
    return ""


def surplus(jobs: Sequence[Job]) -> list[Job]:
    """Those of one VMI that are over and older than the ones that are kept."""
    over = [job for job in jobs if not is_unfinished(job)]
    over.sort(key=lambda job: (job.metadata.creation_timestamp or "", job.metadata.name), reverse=True)
    return over[KEPT:]


def quota_words(refusal: str) -> str:
    """What a quota says against a Pod, without the Pod's name, which is another at each try. Empty when
    the refusal is about something else."""
    at = refusal.find(_QUOTA)
    return refusal[at:] if at >= 0 else ""
