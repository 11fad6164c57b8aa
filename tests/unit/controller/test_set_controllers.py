"""Replica set and pool controllers against a small API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from framework.fake_kube import FakeKube, failure, fake_kube
from framework.vms import plain_vm
from framework.waiting import eventually, running

from virt_controller.pool import controller as pool_controller
from virt_controller.replicaset import controller as set_controller
from virt_controller.sets.members import CONTROLLER_INDEX, ORPHAN_INDEX, controller_indexer, orphan_indexer
from virt_core.apis import names
from virt_core.apis.apps import ControllerRevision
from virt_core.apis.nodes import Node
from virt_core.apis.pool import VirtualMachinePool
from virt_core.apis.replicaset import VirtualMachineInstanceReplicaSet
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.controller import Controller
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock, SystemClock

API = "/apis/kubevirt.io/v1/namespaces/default"
VMIS, VMS = f"{API}/virtualmachineinstances", f"{API}/virtualmachines"
RS = f"{API}/virtualmachineinstancereplicasets/rs"
POOL = "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools/p"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"
INDEXERS = {CONTROLLER_INDEX: controller_indexer, ORPHAN_INDEX: orphan_indexer}


class Rig:
    def __init__(self, kube: FakeKube) -> None:
        self.kube = kube
        client, clock = kube.client(), SystemClock()
        vmis = Informer(client, VirtualMachineInstance, indexers=dict(INDEXERS))
        vms = Informer(client, VirtualMachine, indexers=dict(INDEXERS))
        sets, pools = Informer(client, VirtualMachineInstanceReplicaSet), Informer(client, VirtualMachinePool)
        nodes = Informer(client, Node)
        revisions = Informer(client, ControllerRevision, indexers={CONTROLLER_INDEX: controller_indexer})
        self.recorder = EventRecorder(client, "virt-controller")
        common: dict[str, Any] = {"recorder": self.recorder, "clock": FakeClock()}
        queues = [WorkQueue(clock, name, max_delay_s=0.2) for name in ("rs", "pool")]
        rs = set_controller.ReplicaSetController(
            client, queue=queues[0], sets=sets, members=vmis, kind=set_controller.KIND, **common
        )
        pool = pool_controller.PoolController(
            client, queue=queues[1], sets=pools, members=vms, kind=pool_controller.KIND, **common
        )
        pool.use(vmis, nodes, revisions)
        informers: list[Informer[Any]] = [vmis, vms, sets, pools, nodes, revisions]
        loops = [
            Controller("rs", queues[0], rs.reconcile, 2, informers),
            Controller("pool", queues[1], pool.reconcile, 2, informers),
        ]
        self.bodies = [*(i.run for i in informers), self.recorder.run, *(loop.run for loop in loops)]

    def names(self, collection: str) -> set[str]:
        with self.kube.changed:
            return {path.rsplit("/", 1)[1] for path in self.kube.objects if path.startswith(collection + "/")}

    def change(self, path: str, **parts: dict[str, Any]) -> None:
        obj = json.loads(json.dumps(self.kube.objects[path]))
        for part, values in parts.items():
            obj[part] = (obj.get(part) or {}) | values
        self.kube.put(path, obj)

    def status(self, path: str) -> dict[str, Any]:
        return dict(self.kube.objects[path].get("status") or {})


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        rig = Rig(stack.enter_context(fake_kube()))
        stack.enter_context(running(*rig.bodies))
        yield rig


def replica_set(replicas: int) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"domain": {}}}
    return {"spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "template": template}}


def plain_pool(replicas: int) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": plain_vm()["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "virtualMachineTemplate": template}
    return {"metadata": {"generation": 1}, "spec": spec}


def test_replica_set_up_and_down(rig: Rig) -> None:
    rig.kube.put(RS, replica_set(5))
    eventually(lambda: rig.status(RS).get("replicas") == 5)
    assert len(rig.names(VMIS)) == 5
    for name in rig.names(VMIS):
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        rig.change(f"{VMIS}/{name}", status=status)
    eventually(lambda: rig.status(RS).get("readyReplicas") == 5)
    rig.change(RS, spec={"replicas": 2})
    eventually(lambda: rig.status(RS).get("replicas") == 2)
    assert len(rig.names(VMIS)) == 2
    assert len([1 for method, path in rig.kube.methods("POST") if path == VMIS]) == 5


def test_replica_set_adopts_what_its_selector_matches(rig: Rig) -> None:
    rig.kube.put(f"{VMIS}/old", {"metadata": {"labels": {"app": "x"}}, "spec": {"domain": {}}})
    rig.kube.put(f"{VMIS}/other", {"metadata": {"labels": {"app": "y"}}, "spec": {"domain": {}}})
    rig.kube.put(RS, replica_set(1))
    eventually(lambda: rig.status(RS).get("replicas") == 1)
    assert rig.names(VMIS) == {"old", "other"}
    assert rig.kube.objects[f"{VMIS}/old"]["metadata"]["ownerReferences"][0]["name"] == "rs"
    assert "ownerReferences" not in rig.kube.objects[f"{VMIS}/other"]["metadata"]


def test_a_refusal_becomes_a_condition(rig: Rig) -> None:
    def quota(method: str, path: str, _query: dict[str, str], _body: Any) -> Any:
        return failure(403, "Forbidden", "quota") if method == "POST" and path == VMIS else None

    rig.kube.on_request = quota
    rig.kube.put(RS, replica_set(1))
    eventually(lambda: "ReplicaFailure" in json.dumps(rig.status(RS)))
    rig.kube.on_request = None
    eventually(lambda: rig.status(RS).get("replicas") == 1)
    eventually(lambda: "ReplicaFailure" not in json.dumps(rig.status(RS)))


def test_pool_up_and_down_and_up_again(rig: Rig) -> None:
    rig.kube.put(POOL, plain_pool(3))
    eventually(lambda: rig.status(POOL).get("replicas") == 3)
    assert rig.names(VMS) == {"p-0", "p-1", "p-2"}
    assert rig.names(REVISIONS) == {"p-1"}
    rig.change(POOL, spec={"replicas": 1}, metadata={"generation": 2})
    eventually(lambda: len(rig.names(VMS)) == 1)
    rig.change(POOL, spec={"replicas": 2}, metadata={"generation": 3})
    eventually(lambda: len(rig.names(VMS)) == 2)
    assert rig.names(REVISIONS) == {"p-1"}


def test_a_new_template_reaches_vms_and_restarts_their_vmis(rig: Rig) -> None:
    rig.kube.put(POOL, plain_pool(1))
    eventually(lambda: rig.names(VMS) == {"p-0"})
    labels = {names.LABEL_POOL_REVISION: "p-1"}
    rig.kube.put(f"{VMIS}/p-0", {"metadata": {"labels": labels}, "spec": {"domain": {}}, "status": {}})
    changed = plain_pool(1)["spec"]
    changed["virtualMachineTemplate"]["spec"]["template"]["spec"]["domain"]["chassis"] = {"asset": "7"}
    rig.change(POOL, spec=changed, metadata={"generation": 2})
    eventually(lambda: rig.kube.objects[f"{VMS}/p-0"]["metadata"]["labels"][names.LABEL_POOL_REVISION] == "p-2")
    eventually(lambda: "p-0" not in rig.names(VMIS))
    spec = rig.kube.objects[f"{VMS}/p-0"]["spec"]["template"]["spec"]
    assert spec["domain"]["chassis"] == {"asset": "7"}
    assert rig.names(VMS) == {"p-0"}


def preserving_pool(replicas: int) -> dict[str, Any]:
    plain = plain_pool(replicas)
    plain["spec"]["scaleInStrategy"] = {"proactive": {"statePreservation": "Offline"}}
    plain["spec"]["virtualMachineTemplate"]["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "d"}, "spec": {}}]
    return plain


def owners(rig: Rig, path: str) -> list[str]:
    return [ref["uid"] for ref in rig.kube.objects[path]["metadata"].get("ownerReferences") or []]


def test_volumes_of_a_vm_that_goes_are_preserved(rig: Rig) -> None:
    """Whoever deletes it: the VM waits until its claim and its DataVolume are no longer its own."""
    rig.kube.put(POOL, preserving_pool(1))
    eventually(lambda: rig.names(VMS) == {"p-0"})
    made = rig.kube.objects[f"{VMS}/p-0"]["metadata"]
    assert made["finalizers"] == [names.FINALIZER_POOL]
    claim = "/api/v1/namespaces/default/persistentvolumeclaims/d-0"
    volume = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes/d-0"
    ref = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "p-0", "uid": made["uid"]}
    for path in (claim, volume):
        rig.kube.put(path, {"metadata": {"ownerReferences": [ref, ref | {"name": "b", "uid": "other"}]}, "spec": {}})
    rig.change(f"{VMS}/p-0", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    # Nothing else holds it, so it goes with its last finalizer, and the pool makes another one.
    eventually(lambda: rig.names(VMS) == {"p-0"} and rig.kube.objects[f"{VMS}/p-0"]["metadata"]["uid"] != made["uid"])
    assert owners(rig, claim) == owners(rig, volume) == ["other"]


def test_a_vm_that_was_taken_out_stays_out_and_is_replaced(rig: Rig) -> None:
    rig.kube.put(POOL, preserving_pool(1))
    eventually(lambda: rig.names(VMS) == {"p-0"})
    rig.change(f"{VMS}/p-0", metadata={"ownerReferences": []})
    eventually(lambda: rig.names(VMS) == {"p-0", "p-1"})
    eventually(lambda: not rig.kube.objects[f"{VMS}/p-0"]["metadata"].get("finalizers"))
    assert not owners(rig, f"{VMS}/p-0")


def test_members_whose_labels_do_not_match_any_more_are_let_go(rig: Rig) -> None:
    rig.kube.put(RS, replica_set(1))
    eventually(lambda: len(rig.names(VMIS)) == 1)
    (first,) = rig.names(VMIS)
    rig.change(f"{VMIS}/{first}", metadata={"labels": {"app": "y"}})
    eventually(lambda: len(rig.names(VMIS)) == 2)
    eventually(lambda: not owners(rig, f"{VMIS}/{first}"))


def test_the_vms_of_a_pool_that_is_gone_wait_for_nobody(rig: Rig) -> None:
    rig.kube.put(POOL, preserving_pool(1))
    eventually(lambda: rig.names(VMS) == {"p-0"})
    rig.kube.remove(POOL)
    eventually(lambda: not rig.kube.objects[f"{VMS}/p-0"]["metadata"].get("finalizers"))
