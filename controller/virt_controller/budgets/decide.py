"""Whether a machine has a disruption budget, and how it looks. Pure.

virt-api refuses the eviction of such a machine's Pod itself and says why. The budget tells all who ask before they act
(the scheduler, when it looks for whom to displace; autoscalers), and holds where an eviction does not pass virt-api.
"""

from __future__ import annotations

from collections.abc import Iterable

from virt_controller.launcher_pod.render import controller_reference
from virt_controller.migration.jobs import is_unfinished
from virt_core.apis import names
from virt_core.apis.apps import PodDisruptionBudget, PodDisruptionBudgetSpec
from virt_core.apis.eviction import is_kept
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.meta import LabelSelector, ObjectMeta
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.vmi import VirtualMachineInstance

PREFIX = "kubevirt-disruption-budget-"
#: A machine is in one Pod, and while it moves in two.
_STAYS, _MOVES = 1, 2


def wanted(vmi: VirtualMachineInstance, jobs: Iterable[Job], strategy: str | None) -> PodDisruptionBudget | None:
    """None: it may be evicted. `strategy` is the cluster's, for a machine that has none."""
    if is_final(vmi) or is_terminating(vmi) or not vmi.status.node_name or not is_kept(vmi, strategy):
        return None
    going = any(is_unfinished(job) and job.status.phase not in ("", names.MIGRATION_PENDING) for job in jobs)
    return PodDisruptionBudget(
        metadata=ObjectMeta(
            name=name_for(vmi), namespace=vmi.metadata.namespace, owner_references=[controller_reference(vmi)]
        ),
        spec=PodDisruptionBudgetSpec(
            min_available=_MOVES if going else _STAYS,
            selector=LabelSelector(match_labels={names.LABEL_CREATED_BY: vmi.metadata.uid}),
        ),
    )


def name_for(vmi: VirtualMachineInstance) -> str:
    """By the VMI's UID: one budget for each, however often it is made."""
    return f"{PREFIX}{vmi.metadata.uid}"


def is_for(budget: PodDisruptionBudget, vmi: VirtualMachineInstance) -> bool:
    return any(ref.controller and ref.uid == vmi.metadata.uid for ref in budget.metadata.owner_references)
