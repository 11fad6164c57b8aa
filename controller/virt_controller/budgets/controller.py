"""The controller of disruption budgets: one for each machine that must not be evicted, and none for others."""

from __future__ import annotations

from collections.abc import Callable

from virt_controller.budgets.decide import is_for, name_for, wanted
from virt_controller.migration.controller import VMI_INDEX, vmi_indexer
from virt_core.apis.apps import PodDisruptionBudget
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.controller import Result
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import JsonPatch, op, pointer
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue


class BudgetController:
    """Its keys are VMIs. A budget of a VMI that is gone goes with it, by its owner reference."""

    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        vmis: Informer[VirtualMachineInstance],
        jobs: Informer[Job],
        budgets: Informer[PodDisruptionBudget],
        config: Callable[[], ClusterConfig],
    ) -> None:
        self._client, self._queue, self._config = client, queue, config
        self._vmis, self._jobs, self._budgets = vmis, jobs, budgets
        vmis.add_handler(self._vmi_changed, lambda _old, new: self._vmi_changed(new))
        jobs.add_handler(self._job_changed, lambda _old, new: self._job_changed(new), self._job_changed)
        budgets.add_handler(self._budget_changed, lambda _old, new: self._budget_changed(new), self._budget_changed)

    def reconcile(self, key: str) -> Result | None:
        vmi = self._vmis.get(key)
        if vmi is None:
            return None
        jobs = self._jobs.by_index(VMI_INDEX, key)
        want = wanted(vmi, jobs, self._config().eviction_strategy)
        have = self._budgets.get(f"{vmi.metadata.namespace}/{name_for(vmi)}")
        if have is not None and not is_for(have, vmi):
            return None  # Somebody else's, under our name.
        if want is None and have is not None:
            self._remove(have)
        elif want is not None and have is None:
            self._create(want)
        elif want is not None and have is not None and want.spec.min_available != have.spec.min_available:
            self._change(have, want)
        return None

    def _create(self, budget: PodDisruptionBudget) -> None:
        try:
            self._client.create(budget)
        except AlreadyExists:
            return  # Our copy is late; the budget brings the VMI back.

    def _change(self, have: PodDisruptionBudget, want: PodDisruptionBudget) -> None:
        meta, path = have.metadata, pointer("spec", "minAvailable")
        patch = JsonPatch([op.replace(path, want.spec.min_available)])
        try:
            self._client.patch(PodDisruptionBudget, meta.name, meta.namespace, patch)
        except NotFound:
            return

    def _remove(self, have: PodDisruptionBudget) -> None:
        meta = have.metadata
        try:
            self._client.delete(PodDisruptionBudget, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    # -- events --------------------------------------------------------------------------------------------------------

    def _vmi_changed(self, vmi: VirtualMachineInstance) -> None:
        self._queue.add(key_of(vmi))

    def _job_changed(self, job: Job) -> None:
        for key in vmi_indexer(job):
            self._queue.add(key)

    def _budget_changed(self, budget: PodDisruptionBudget) -> None:
        for ref in budget.metadata.owner_references:
            if ref.controller and ref.kind == "VirtualMachineInstance":
                self._queue.add(f"{budget.metadata.namespace}/{ref.name}")
