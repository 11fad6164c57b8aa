"""Machines with an old launcher: who moves, who is evicted, how many at a time, and who is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.vmis import NODE, plain_pod, plain_vmi
from framework.waiting import eventually, running

from virt_controller.migration.controller import VMI_INDEX, vmi_indexer
from virt_controller.update.controller import UpdateController
from virt_controller.update.decide import Around, Plan, count, job_for, plan
from virt_controller.vmi.controller import OWNER_INDEX, owner_indexer
from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.kubevirt import KubeVirt, KubeVirtWorkloadUpdateStrategy
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.workloadupdate import interval_of, size_of
from virt_core.kube.clusterconfig import ConfigState
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.times import rfc3339

OLD, NEW = "example.internal/launcher:1", "example.internal/launcher:2"
NOW = FakeClock().now()
BOTH = ("LiveMigrate", "Evict")


def machine(
    name: str = "vm",
    *,
    image: str = OLD,
    movable: str = "True",
    phase: str = "Running",
    eviction: str = "None",
    **status: Any,
) -> VirtualMachineInstance:
    plain = plain_vmi(name, phase, metadata={"uid": f"uid-{name}"})
    plain["spec"]["evictionStrategy"] = eviction
    plain["status"] |= {
        "nodeName": NODE,
        "activePods": {f"pod-{name}": NODE},
        "launcherContainerImageVersion": image,
        "conditions": [{"type": "LiveMigratable", "status": movable}],
        **status,
    }
    return from_plain(plain, VirtualMachineInstance)


def job(phase: str, vmi: str = "vm", *, mine: bool = True, ago_s: float = 0.0) -> Job:
    stamp = {"phase": phase, "phaseTransitionTimestamp": rfc3339(NOW - timedelta(seconds=ago_s))}
    annotations = {names.ANNOTATION_WORKLOAD_UPDATE: ""} if mine else {}
    meta = {"name": f"j{ago_s}", "namespace": "default", "uid": f"j{ago_s}", "annotations": annotations}
    status = {"phase": phase, "phaseTransitionTimestamps": [stamp]}
    return from_plain({"metadata": meta, "spec": {"vmiName": vmi}, "status": status}, Job)


def planned(
    *vmis: VirtualMachineInstance, jobs: tuple[Job, ...] = (), methods: tuple[str, ...] = BOTH, **around: Any
) -> Plan:
    strategy = KubeVirtWorkloadUpdateStrategy(workload_update_methods=list(methods), batch_eviction_size=2)
    found = Around(image=NEW, now=NOW, **around)
    return plan(vmis, lambda vmi: [each for each in jobs if each.spec.vmi_name == vmi.metadata.name], strategy, found)


def names_of(vmis: tuple[VirtualMachineInstance, ...]) -> list[str]:
    return [vmi.metadata.name for vmi in vmis]


@pytest.mark.parametrize(
    ("methods", "movable", "moves", "goes"),
    [
        (BOTH, "True", True, False),
        (BOTH, "False", False, True),
        (("LiveMigrate",), "False", False, False),
        (("Evict",), "True", False, True),
        ((), "True", False, False),
    ],
)
def test_by_which_method(methods: tuple[str, ...], movable: str, moves: bool, goes: bool) -> None:
    found = planned(machine(movable=movable), methods=methods)
    assert (bool(found.migrate), bool(found.evict)) == (moves, goes)
    assert bool(found.recheck_s) is (moves or goes)


def test_without_a_strategy_nothing_happens() -> None:
    assert plan([machine()], lambda _: [], None, Around(image=NEW, now=NOW)) == Plan()


def test_who_is_up_to_date_or_over_is_left_alone() -> None:
    assert planned(machine(image=NEW), machine("b", phase="Failed"), machine("c", image="")) == Plan()
    assert planned(machine(phase="Scheduled")) == Plan()
    assert count([machine(), machine("b", image=NEW), machine("c", phase="Succeeded")], NEW) == 1


def test_who_would_be_refused_is_not_evicted() -> None:
    tied = machine("a", movable="False", eviction="LiveMigrate")
    assert not planned(tied, machine("b", movable="False", eviction="External")).evict
    assert not planned(machine("c", movable="False", evacuationNodeName=NODE)).evict


def test_as_many_moves_as_there_is_room_for() -> None:
    many = [machine(f"m{i}") for i in range(8)]
    assert names_of(planned(*many, going=3, limit=5).migrate) == ["m0", "m1"]
    assert planned(*many, going=5, limit=5).migrate == ()


def test_one_job_at_a_time_and_those_that_failed_come_last() -> None:
    machines = (machine("a"), machine("b"), machine("c"))
    jobs = (job("Running", "a", mine=False), job("Failed", "b", ago_s=30))
    assert names_of(planned(*machines, jobs=jobs).migrate) == ["c", "b"]
    assert names_of(planned(machine("b"), jobs=(job("Failed", "b", ago_s=5),)).migrate) == [], "it has to wait"


def test_a_batch_at_a_time() -> None:
    machines = [machine(f"m{i}", movable="False") for i in range(3)]
    assert names_of(planned(*machines).evict) == ["m0", "m1"]
    assert planned(*machines, evicted_at=NOW - timedelta(seconds=59)).evict == ()
    assert planned(*machines, evicted_at=NOW - timedelta(seconds=60)).evict


def test_a_job_that_is_not_needed_any_more_is_given_up_before_it_begins() -> None:
    waiting = job("Pending")
    assert planned(machine(image=NEW), jobs=(waiting,)).cancel == (waiting,)
    assert planned(machine(), jobs=(waiting,)).cancel == ()
    assert planned(machine(image=NEW), jobs=(job("Running"),)).cancel == ()
    assert planned(machine(image=NEW), jobs=(job("Pending", mine=False),)).cancel == ()


def test_the_job_says_why_it_is_there() -> None:
    made = job_for(machine(), NEW)
    assert made.metadata.generate_name == "kubevirt-workload-update-"
    assert made.metadata.annotations == {"kubevirt.io/workloadUpdateMigration": ""}
    assert made.spec.priority == "system-critical"


def cramped(name: str = "vm", *, reason: str = "PodResizeRefused", status: str = "False", **more: Any) -> Any:
    """It asks for more than it can have in its Pod."""
    told = {"type": "HotVCPUChange", "status": status, "reason": reason, "message": "no room"}
    movable = {"type": "LiveMigratable", "status": more.pop("movable", "True")}
    return machine(name, image=more.pop("image", NEW), conditions=[movable, told], **more)


@pytest.mark.parametrize(
    ("reason", "status", "moves"),
    [
        ("PodResizeRefused", "False", True),
        ("PodResizeInfeasible", "False", True),
        ("PodResizeDeferred", "True", False),
        ("WaitingForGuest", "True", False),
        ("Memory Hotplug Failed", "False", False),
    ],
)
def test_who_cannot_grow_where_it_is_moves_to_where_it_can(reason: str, status: str, moves: bool) -> None:
    found = planned(cramped(reason=reason, status=status))
    assert names_of(found.migrate) == (["vm"] if moves else [])
    assert found.evict == ()
    assert count([cramped()], NEW) == 0, "its launcher is the newest"


def test_nobody_is_evicted_for_its_size() -> None:
    assert planned(cramped(movable="False")) == Plan()
    assert planned(cramped(), methods=("Evict",)) == Plan()
    assert planned(cramped(movable="False", image=OLD)).evict, "but for its launcher"


def test_a_move_for_a_size_has_the_rank_of_one_that_somebody_asked_for() -> None:
    assert job_for(cramped(), NEW).spec.priority == "user-triggered"
    assert job_for(cramped(image=OLD), NEW).spec.priority == "system-critical"


def test_a_machine_that_moved_in_vain_is_not_moved_at_once_again() -> None:
    assert planned(cramped(), jobs=(job("Succeeded", ago_s=59),)).migrate == ()
    assert planned(cramped(), jobs=(job("Succeeded", ago_s=60),)).migrate
    assert planned(machine(), jobs=(job("Succeeded", ago_s=1),)).migrate, "of another image"


def test_a_size_that_was_taken_back_needs_no_move() -> None:
    waiting = job("Pending")
    assert planned(cramped(), jobs=(waiting,)).cancel == ()
    assert planned(machine(image=NEW), jobs=(waiting,)).cancel == (waiting,)


@pytest.mark.parametrize(("text", "seconds"), [(None, 60.0), ("90s", 90.0), ("1m0s", 60.0), ("1.5h", 5400.0)])
def test_batches(text: str | None, seconds: float) -> None:
    assert interval_of(KubeVirtWorkloadUpdateStrategy(batch_eviction_interval=text)) == seconds
    assert size_of(KubeVirtWorkloadUpdateStrategy()) == 10


# -- the controller ----------------------------------------------------------------------------------------------------

MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
JOBS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
KUBEVIRT = "/apis/kubevirt.io/v1/namespaces/virtpod/kubevirts/kubevirt"


@contextmanager
def controller(kube: FakeKube, *methods: str) -> Iterator[UpdateController]:
    strategy = KubeVirtWorkloadUpdateStrategy(workload_update_methods=list(methods))
    plain = {
        "metadata": {"name": "kubevirt", "namespace": "virtpod"},
        "spec": {"workloadUpdateStrategy": to_plain(strategy)},
    }
    source = from_plain(plain, KubeVirt)
    kube.put(KUBEVIRT, plain)
    client, clock = kube.client(), FakeClock()
    kubevirts = Informer(client, KubeVirt, "virtpod")
    vmis = Informer(client, VirtualMachineInstance)
    pods = Informer(client, Pod, indexers={OWNER_INDEX: owner_indexer})
    jobs = Informer(client, Job, indexers={VMI_INDEX: vmi_indexer})
    it = UpdateController(
        client,
        queue=WorkQueue(clock),
        kubevirts=kubevirts,
        state=lambda: ConfigState(ClusterConfig(), source),
        vmis=vmis,
        pods=pods,
        jobs=jobs,
        recorder=EventRecorder(client, "virt-controller"),
        clock=clock,
        image=NEW,
    )
    caches = (kubevirts, vmis, pods, jobs)
    with running(*(each.run for each in caches)):
        eventually(lambda: all(each.has_synced() for each in caches))
        yield it


def test_an_outdated_machine_gets_one_job() -> None:
    with fake_kube() as kube:
        kube.put(f"{MACHINES}/vm", to_plain(machine()))
        with controller(kube, "LiveMigrate") as it:
            it.reconcile("virtpod/kubevirt")
            it.reconcile("virtpod/kubevirt")
            it.reconcile("virtpod/another")
        assert [path for _, path in kube.methods("POST") if path == JOBS] == [JOBS]


def test_one_that_cannot_move_is_evicted_by_the_front_door() -> None:
    with fake_kube() as kube:
        vmi = machine(movable="False")
        kube.put(f"{MACHINES}/vm", to_plain(vmi))
        pod = plain_pod(vmi.metadata.uid, "Running")
        pod["metadata"]["uid"] = "pod-vm"
        kube.put("/api/v1/namespaces/default/pods/virt-launcher-vm-abcde", pod)
        with controller(kube, *BOTH) as it:
            it.reconcile("virtpod/kubevirt")
            it.reconcile("virtpod/kubevirt")
        path = "/api/v1/namespaces/default/pods/virt-launcher-vm-abcde/eviction"
        assert [each for _, each in kube.methods("POST") if each.endswith("eviction")] == [path], "one batch"


def test_who_is_to_be_on_another_network_moves_there() -> None:
    def wants(status: str) -> VirtualMachineInstance:
        told = {"type": "MigrationRequired", "status": status, "reason": "NetworkChanged"}
        return machine(image=NEW, conditions=[{"type": "LiveMigratable", "status": "True"}, told])

    assert names_of(planned(wants("True")).migrate) == ["vm"]
    assert planned(wants("True"), methods=("Evict",)) == Plan()
    assert planned(wants("False")) == Plan()
