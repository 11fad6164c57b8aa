"""Disruption budgets: who has one, how it looks, and when it goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.vmis import UID, handed_over, plain_vmi
from framework.waiting import eventually, running

from virt_controller.budgets.controller import BudgetController
from virt_controller.budgets.decide import wanted
from virt_controller.migration.controller import VMI_INDEX, vmi_indexer
from virt_core.apis.apps import PodDisruptionBudget
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.informer import Informer
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock

VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"
BUDGET = f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/kubevirt-disruption-budget-{UID}"


def machine(
    strategy: str | None = "LiveMigrate", movable: str = "True", phase: str = "Running", **status: Any
) -> VirtualMachineInstance:
    spec = plain_vmi()["spec"] | ({"evictionStrategy": strategy} if strategy else {})
    conditions = [{"type": "LiveMigratable", "status": movable}]
    return handed_over(phase, status={"conditions": conditions, **status}, spec=spec)


def job(phase: str) -> Job:
    plain = {"metadata": {"name": "j", "namespace": "default", "uid": "j"}, "spec": {"vmiName": "vm"}}
    return from_plain(plain | {"status": {"phase": phase}}, Job)


@pytest.mark.parametrize(
    ("strategy", "movable", "has"),
    [
        ("LiveMigrate", "True", True),
        ("LiveMigrate", "False", True),
        ("LiveMigrateIfPossible", "True", True),
        ("LiveMigrateIfPossible", "False", False),
        ("External", "False", True),
        ("None", "True", False),
        (None, "True", False),
    ],
)
def test_who_has_one(strategy: str | None, movable: str, has: bool) -> None:
    assert (wanted(machine(strategy, movable), [], None) is not None) is has


def test_the_cluster_says_what_a_machine_does_not() -> None:
    assert wanted(machine(None), [], "LiveMigrate") is not None


def test_who_is_over_or_on_no_node_has_none() -> None:
    assert wanted(machine(phase="Failed"), [], None) is None
    assert wanted(machine(nodeName=""), [], None) is None


def test_it_covers_the_pods_of_its_machine() -> None:
    budget = wanted(machine(), [], None)
    assert budget is not None
    assert budget.spec.selector is not None
    assert budget.spec.selector.match_labels == {"kubevirt.io/created-by": UID}
    owner = budget.metadata.owner_references[0]
    assert (owner.kind, owner.uid, owner.controller) == ("VirtualMachineInstance", UID, True)


@pytest.mark.parametrize(("phase", "pods"), [("", 1), ("Pending", 1), ("Scheduling", 2), ("Running", 2), ("Failed", 1)])
def test_a_machine_that_moves_is_in_two_pods(phase: str, pods: int) -> None:
    budget = wanted(machine(), [job(phase)], None)
    assert budget is not None
    assert budget.spec.min_available == pods


@contextmanager
def controller(kube: FakeKube) -> Iterator[tuple[BudgetController, Any, Any, Any]]:
    client = kube.client()
    vmis = Informer(client, VirtualMachineInstance)
    jobs = Informer(client, Job, indexers={VMI_INDEX: vmi_indexer})
    budgets = Informer(client, PodDisruptionBudget)
    queue = WorkQueue(FakeClock())
    it = BudgetController(client, queue=queue, vmis=vmis, jobs=jobs, budgets=budgets, config=ClusterConfig)
    with running(vmis.run, jobs.run, budgets.run):
        eventually(lambda: all(each.has_synced() for each in (vmis, jobs, budgets)))
        yield it, vmis, jobs, budgets


def test_from_the_start_over_a_move_to_the_end() -> None:
    with fake_kube() as kube, controller(kube) as (it, vmis, jobs, budgets):
        kube.put(VMI, to_plain(machine()))
        eventually(vmis.list)
        it.reconcile("default/vm")
        it.reconcile("default/vm")
        assert kube.objects[BUDGET]["spec"]["minAvailable"] == 1
        eventually(budgets.list)
        kube.put("/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations/j", to_plain(job("Running")))
        eventually(jobs.list)
        it.reconcile("default/vm")
        assert kube.objects[BUDGET]["spec"]["minAvailable"] == 2
        kube.put(VMI, to_plain(machine(phase="Succeeded")))
        eventually(lambda: vmis.list()[0].status.phase == "Succeeded")
        it.reconcile("default/vm")
        assert BUDGET not in kube.objects
