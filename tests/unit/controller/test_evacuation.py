"""Machines that must leave their node: who does, by which job, and who may stay after all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.vmis import NODE, handed_over, plain_vmi
from framework.waiting import eventually, running

from virt_controller.evacuation.controller import EvacuationController
from virt_controller.evacuation.decide import Plan, is_drained, job_for, plan
from virt_controller.migration.controller import VMI_INDEX, vmi_indexer
from virt_controller.migration.jobs import backoff_s
from virt_controller.node.controller import NODE_INDEX, node_indexer
from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.nodes import Node
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.times import rfc3339

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAINT = "kubevirt.io/drain"
JOBS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"


def machine(
    strategy: str | None = "LiveMigrate",
    *,
    marked: bool = True,
    movable: str = "True",
    phase: str = "Running",
    **metadata: Any,
) -> VirtualMachineInstance:
    status: dict[str, Any] = {"conditions": [{"type": "LiveMigratable", "status": movable, "message": "a device"}]}
    if marked:
        status["evacuationNodeName"] = NODE
    spec = plain_vmi()["spec"] | ({"evictionStrategy": strategy} if strategy else {})
    return handed_over(phase, status=status, spec=spec, metadata=metadata)


def job(phase: str = "Running", *, node: str | None = NODE, ended_s: float = 0.0, uid: str = "j", **meta: Any) -> Job:
    stamp = {"phase": phase, "phaseTransitionTimestamp": rfc3339(NOW + timedelta(seconds=ended_s))}
    annotations = {names.ANNOTATION_EVACUATION: node} if node else {}
    return from_plain(
        {
            "metadata": {"name": f"move-{uid}", "namespace": "default", "uid": uid, "annotations": annotations, **meta},
            "spec": {"vmiName": "vm"},
            "status": {"phase": phase, "phaseTransitionTimestamps": [stamp]},
        },
        Job,
    )


def planned(
    vmi: VirtualMachineInstance, *jobs: Job, drained: bool = False, default: str | None = None, node: str = NODE
) -> Plan:
    return plan(node, drained, [vmi], lambda _: jobs, default)


@pytest.mark.parametrize(
    ("strategy", "marked", "drained", "leaves"),
    [
        ("LiveMigrate", True, False, True),
        ("LiveMigrateIfPossible", True, False, True),
        ("LiveMigrate", False, True, True),
        ("LiveMigrate", False, False, False),
        ("External", True, False, False),
        ("External", False, True, False),
        ("None", False, True, False),
        (None, True, False, False),
    ],
)
def test_who_leaves(strategy: str | None, marked: bool, drained: bool, leaves: bool) -> None:
    found = planned(machine(strategy, marked=marked), drained=drained)
    assert bool(found.create) is leaves
    assert not found.tied


def test_the_cluster_says_what_a_machine_does_not() -> None:
    assert planned(machine(None), default="LiveMigrate").create


def test_who_is_ending_stays() -> None:
    assert planned(machine(phase="Succeeded")) == Plan()
    assert planned(machine(deletionTimestamp="2026-01-01T00:00:00Z")) == Plan()
    assert planned(machine(), node="another") == Plan()


def test_one_job_at_a_time_whoever_made_it() -> None:
    assert planned(machine(), job("Pending")) == Plan()
    assert planned(machine(), job("Running", node=None)) == Plan()
    assert planned(machine(), job("Failed")).create
    assert planned(machine(), job("Succeeded"), job("Running", uid="k")) == Plan()


def test_who_cannot_leave_is_known() -> None:
    assert planned(machine(movable="False")).tied
    assert planned(machine(phase="Scheduled")) == Plan(), "it may be able to in a moment"


def test_who_may_stay_after_all_is_not_moved() -> None:
    """Only what was made for the evacuation is given up, and only once."""
    made = job("Running")
    assert planned(machine(marked=False), made).cancel == (made,)
    assert planned(machine(marked=False), job("Running", node=None)) == Plan()
    assert planned(machine(marked=False), job("Failed")) == Plan()
    assert planned(machine(marked=False), job("Running", deletionTimestamp="2026-01-01T00:00:00Z")) == Plan()
    assert planned(machine(marked=False), made, drained=True) == Plan(), "the taint holds"


def test_a_node_is_drained_by_its_taint() -> None:
    def node(**taint: str) -> Node:
        return from_plain({"metadata": {"name": NODE}, "spec": {"taints": [taint]}}, Node)

    assert is_drained(node(key=TAINT, effect="NoSchedule"), TAINT)
    assert not is_drained(node(key=TAINT, effect="PreferNoSchedule"), TAINT)
    assert not is_drained(node(key="other", effect="NoSchedule"), TAINT)
    assert not is_drained(None, TAINT)


@pytest.mark.parametrize(
    ("annotations", "priority"),
    [({}, "system-critical"), ({"kubevirt.io/eviction-source": "descheduler"}, "system-maintenance")],
)
def test_the_job_says_why_it_is_there(annotations: dict[str, str], priority: str) -> None:
    made = job_for(machine(annotations=annotations), NODE)
    assert (made.metadata.generate_name, made.metadata.namespace) == ("kubevirt-evacuation-", "default")
    assert made.metadata.annotations == {"kubevirt.io/evacuationMigration": NODE}
    assert (made.spec.vmi_name, made.spec.priority) == ("vm", priority)


def test_after_failures_it_waits_twice_as_long_each_time() -> None:
    new = job("", uid="new")
    failed = [job("Failed", ended_s=float(s), uid=f"f{s}") for s in range(8)]
    waits = [backoff_s(new, [new, *failed[:count]], NOW + timedelta(seconds=max(count - 1, 0))) for count in range(8)]
    assert waits == [0.0, 20.0, 40.0, 80.0, 160.0, 320.0, 320.0, 320.0]
    assert backoff_s(new, failed[:1], NOW + timedelta(seconds=15)) == 5.0
    assert backoff_s(new, failed[:1], NOW + timedelta(seconds=60)) == 0.0


def test_a_success_or_a_user_ends_the_waiting() -> None:
    failed, done = job("Failed", ended_s=0, uid="f"), job("Succeeded", ended_s=1, uid="s")
    assert backoff_s(job("", uid="new"), [failed, done], NOW + timedelta(seconds=1)) == 0.0
    assert backoff_s(job("", uid="new", node=None), [failed], NOW) == 0.0, "somebody asked for it"


# -- the controller ----------------------------------------------------------------------------------------------------


@contextmanager
def controller(
    kube: FakeKube,
) -> Iterator[tuple[EvacuationController, Informer[VirtualMachineInstance], Informer[Job]]]:
    client, clock = kube.client(), FakeClock()
    nodes = Informer(client, Node)
    vmis = Informer(client, VirtualMachineInstance, indexers={NODE_INDEX: node_indexer})
    jobs = Informer(client, Job, indexers={VMI_INDEX: vmi_indexer})
    made = EvacuationController(
        client,
        queue=WorkQueue(clock),
        nodes=nodes,
        vmis=vmis,
        jobs=jobs,
        recorder=EventRecorder(client, "virt-controller"),
        clock=clock,
        config=ClusterConfig,
    )
    with running(nodes.run, vmis.run, jobs.run):
        eventually(lambda: nodes.has_synced() and vmis.has_synced() and jobs.has_synced())
        yield made, vmis, jobs


def test_a_marked_machine_gets_one_job_and_loses_it_with_the_mark() -> None:
    with fake_kube() as kube:
        kube.put(VMI, to_plain(machine()))
        with controller(kube) as (it, vmis, jobs):
            it.reconcile(NODE)
            it.reconcile(NODE)
            assert [path for _, path in kube.methods("POST") if path == JOBS] == [JOBS]
            eventually(jobs.list)
            kube.put(VMI, to_plain(machine(marked=False)))
            eventually(lambda: not vmis.list()[0].status.evacuation_node_name)
            it.reconcile(NODE)
            assert len(kube.methods("DELETE")) == 1
