"""Which machines get a new launcher Pod now, and how. Pure.

A machine whose launcher is outdated moves by a migration if it can and the KubeVirt object allows that; else it is
evicted if that is allowed, a few at a time. One that may neither move nor go keeps its launcher until it is stopped.

A machine that cannot have the CPUs or the memory that it asks for where it is moves as well, into a Pod that was made
for them (decisions/0029), and so does one whose card is to be on another network, or whose volumes are to be on other
claims (decisions/0056). For that nobody is evicted: its owner restarts it when that suits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from virt_controller.migration.jobs import is_unfinished, last_success, new_job, wait_s
from virt_controller.vmi.networks import is_elsewhere
from virt_controller.vmi.resize import is_in_vain
from virt_controller.vmi.upkeep import is_outdated
from virt_core.apis import names
from virt_core.apis.eviction import EXTERNAL, LIVE_MIGRATE, is_movable, strategy_of
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.kubevirt import KubeVirtWorkloadUpdateStrategy
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.workloadupdate import EVICT, MIGRATE, interval_of, size_of
from virt_core.kube.conditions import is_true

PREFIX = "kubevirt-workload-update-"
#: What is still to be done is looked at again at least so often.
RECHECK_S = 30.0
#: A machine that has moved and still lacks something is left alone for so long.
SETTLE_S = 60.0
_MAX_LABEL = 63

JobsOf = Callable[[VirtualMachineInstance], Sequence[Job]]


@dataclass(frozen=True, slots=True)
class Around:
    """What a plan depends on beside the machines."""

    #: The image of new launchers.
    image: str
    now: datetime
    #: Unfinished migrations in the cluster, and how many there may be.
    going: int = 0
    limit: int = 5
    #: The cluster's eviction strategy.
    eviction: str | None = None
    #: When the last batch was evicted.
    evicted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    migrate: tuple[VirtualMachineInstance, ...] = ()
    evict: tuple[VirtualMachineInstance, ...] = ()
    #: Jobs that have not begun and are not needed any more, and those that take volumes where they shall not go.
    cancel: tuple[Job, ...] = ()
    recheck_s: float = 0.0


def count(vmis: Iterable[VirtualMachineInstance], image: str) -> int:
    return len(outdated(vmis, image))


def outdated(vmis: Iterable[VirtualMachineInstance], image: str) -> list[VirtualMachineInstance]:
    return [vmi for vmi in vmis if not is_final(vmi) and is_outdated(vmi, image)]


def plan(
    vmis: Iterable[VirtualMachineInstance],
    jobs_of: JobsOf,
    strategy: KubeVirtWorkloadUpdateStrategy | None,
    around: Around,
) -> Plan:
    known = list(vmis)
    methods = frozenset(strategy.workload_update_methods) if strategy is not None else frozenset()
    due = [vmi for vmi in known if is_wanted(vmi, around.image)]
    moving = [vmi for vmi in due if MIGRATE in methods and is_movable(vmi)]
    uids = {vmi.metadata.uid for vmi in moving}
    others = [vmi for vmi in due if vmi.metadata.uid not in uids]
    going = [
        vmi for vmi in others if EVICT in methods and is_outdated(vmi, around.image) and _may_go(vmi, around.eviction)
    ]
    idle = (job for vmi in known if vmi.metadata.uid not in uids for job in jobs_of(vmi))
    return Plan(
        migrate=_next_moves(moving, jobs_of, around),
        evict=_next_batch(going, strategy, around),
        cancel=tuple(job for job in idle if _waits_in_vain(job))
        + tuple(job for vmi in known if not takes_volumes(vmi) for job in jobs_of(vmi) if _took_volumes(job)),
        recheck_s=RECHECK_S if moving or going else 0.0,
    )


def is_wanted(vmi: VirtualMachineInstance, image: str) -> bool:
    """Whether it should have another launcher Pod."""
    alive = vmi.status.phase == names.PHASE_RUNNING and not is_terminating(vmi)
    return alive and (is_outdated(vmi, image) or is_in_vain(vmi) or is_elsewhere(vmi) or takes_volumes(vmi))


def takes_volumes(vmi: VirtualMachineInstance) -> bool:
    """Whether its volumes are to be on other claims."""
    return bool(vmi.status.migrated_volumes) and is_true(vmi.status.conditions, names.CONDITION_VOLUMES_CHANGE)


def job_for(vmi: VirtualMachineInstance, image: str) -> Job:
    """What its owner has asked for has the rank of a move that somebody asked for."""
    priority = names.PRIORITY_CRITICAL if is_outdated(vmi, image) else names.PRIORITY_USER
    job = new_job(vmi, PREFIX, {names.ANNOTATION_WORKLOAD_UPDATE: ""}, priority)
    if takes_volumes(vmi):
        name = vmi.metadata.name
        job.metadata.labels[names.LABEL_VOLUME_UPDATE] = name if len(name) <= _MAX_LABEL else vmi.metadata.uid
    return job


def _next_moves(
    vmis: Sequence[VirtualMachineInstance], jobs_of: JobsOf, around: Around
) -> tuple[VirtualMachineInstance, ...]:
    """Those that have failed least come first, so that none holds up the others."""
    free = max(around.limit - around.going, 0)
    ready = [vmi for vmi in vmis if _is_ready(vmi, jobs_of(vmi), around)]
    ready.sort(key=lambda vmi: (wait_s(jobs_of(vmi)), vmi.metadata.namespace, vmi.metadata.name))
    return tuple(ready[:free])


def _is_ready(vmi: VirtualMachineInstance, jobs: Sequence[Job], around: Around) -> bool:
    if any(is_unfinished(job) for job in jobs) or wait_s(jobs, around.now):
        return False
    moved = last_success(jobs)
    at_once = is_outdated(vmi, around.image) or takes_volumes(vmi)
    return at_once or moved is None or (around.now - moved).total_seconds() >= SETTLE_S


def _next_batch(
    vmis: Sequence[VirtualMachineInstance], strategy: KubeVirtWorkloadUpdateStrategy | None, around: Around
) -> tuple[VirtualMachineInstance, ...]:
    if strategy is None:
        return ()
    pause = timedelta(seconds=interval_of(strategy))
    if around.evicted_at is not None and around.now - around.evicted_at < pause:
        return ()
    return tuple(sorted(vmis, key=lambda vmi: (vmi.metadata.namespace, vmi.metadata.name))[: size_of(strategy)])


def _may_go(vmi: VirtualMachineInstance, default: str | None) -> bool:
    """Not one whose eviction is refused for sure."""
    strategy = strategy_of(vmi, default)
    if vmi.status.evacuation_node_name:
        return False
    return strategy != EXTERNAL and (strategy != LIVE_MIGRATE or is_movable(vmi))


def _took_volumes(job: Job) -> bool:
    return names.LABEL_VOLUME_UPDATE in job.metadata.labels and is_unfinished(job) and not is_terminating(job)


def _waits_in_vain(job: Job) -> bool:
    waits = job.status.phase in ("", names.MIGRATION_PENDING)
    return waits and names.ANNOTATION_WORKLOAD_UPDATE in job.metadata.annotations and not is_terminating(job)
