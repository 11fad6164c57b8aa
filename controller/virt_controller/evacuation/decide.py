"""Which machines of a node must leave it, and which of the jobs that were made for that are not needed any more. Pure.

All jobs are made at once: how many of them go at a time is a matter of the limits of migrations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from virt_controller.migration.jobs import is_unfinished, new_job
from virt_core.apis import names
from virt_core.apis.eviction import is_movable, is_ours_to_move
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.nodes import Node
from virt_core.apis.podroles import active
from virt_core.apis.vmi import VirtualMachineInstance

PREFIX = "kubevirt-evacuation-"
DESCHEDULER = "descheduler"
_NO_SCHEDULE = "NoSchedule"

JobsOf = Callable[[VirtualMachineInstance], Iterable[Job]]


@dataclass(frozen=True, slots=True)
class Plan:
    create: tuple[VirtualMachineInstance, ...] = ()
    #: Jobs of machines that may stay after all.
    cancel: tuple[Job, ...] = ()
    #: Machines that must leave and cannot.
    tied: tuple[VirtualMachineInstance, ...] = ()


def is_drained(node: Node | None, taint: str) -> bool:
    return node is not None and any(each.key == taint and each.effect == _NO_SCHEDULE for each in node.spec.taints)


def plan(
    node: str, drained: bool, vmis: Iterable[VirtualMachineInstance], jobs_of: JobsOf, strategy: str | None
) -> Plan:
    """`vmis` are those of the node; `strategy` is the cluster's, for those that have none."""
    create: list[VirtualMachineInstance] = []
    cancel: list[Job] = []
    tied: list[VirtualMachineInstance] = []
    for vmi in vmis:
        jobs = [job for job in jobs_of(vmi) if is_unfinished(job)]
        if not must_leave(vmi, node, drained, strategy):
            cancel += [job for job in jobs if _is_for(job, node) and not is_terminating(job)]
        elif not is_movable(vmi):
            tied += [vmi] if vmi.status.phase == names.PHASE_RUNNING else []
        elif not jobs and active(vmi) is not None:
            create.append(vmi)
    return Plan(tuple(create), tuple(cancel), tuple(tied))


def must_leave(vmi: VirtualMachineInstance, node: str, drained: bool, strategy: str | None) -> bool:
    if is_final(vmi) or is_terminating(vmi) or vmi.status.node_name != node:
        return False
    return is_ours_to_move(vmi, strategy) and (drained or vmi.status.evacuation_node_name == node)


def job_for(vmi: VirtualMachineInstance, node: str) -> Job:
    asked = vmi.metadata.annotations.get(names.ANNOTATION_EVICTION_SOURCE) == DESCHEDULER
    priority = names.PRIORITY_MAINTENANCE if asked else names.PRIORITY_CRITICAL
    return new_job(vmi, PREFIX, {names.ANNOTATION_EVACUATION: node}, priority)


def _is_for(job: Job, node: str) -> bool:
    return job.metadata.annotations.get(names.ANNOTATION_EVACUATION) == node
