"""The VMI controller against a small API server: what it writes, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from framework.fake_kube import FakeKube, failure, fake_kube
from framework.vmis import UID, plain_pod, plain_vmi
from framework.vms import owner
from framework.waiting import eventually, running

from virt_controller.launcher_pod import TemplateConfig
from virt_controller.vmi.controller import OWNER_INDEX, VMIController, limits_cpu, owner_indexer, with_devices
from virt_core.apis import names
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Namespace, Node, NodeStatus
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.clusterconfig import effective
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.controller import Controller
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock, SystemClock

VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"
PODS = "/api/v1/namespaces/default/pods"


class Rig:
    def __init__(self, kube: FakeKube) -> None:
        self.kube = kube
        self.cluster = ClusterConfig()
        client, clock = kube.client(), SystemClock()
        vmis, nodes = Informer(client, VirtualMachineInstance), Informer(client, Node)
        pods = Informer(client, Pod, label_selector="kubevirt.io=virt-launcher", indexers={OWNER_INDEX: owner_indexer})
        self.seen = pods
        queue = WorkQueue(clock, "vmi", max_delay_s=0.2)
        self.recorder = EventRecorder(client, "virt-controller")
        controller = VMIController(
            client,
            queue=queue,
            vmis=vmis,
            pods=pods,
            nodes=nodes,
            recorder=self.recorder,
            template=TemplateConfig("example.internal/launcher:v1"),
            config=lambda: self.cluster,
            # The fake API server makes everything on the first of January.
            clock=FakeClock(),
        )
        loop = Controller("vmi", queue, controller.reconcile, 4, [vmis, pods, nodes])
        self.bodies = [vmis.run, pods.run, nodes.run, self.recorder.run, loop.run]

    def pods(self) -> list[dict[str, Any]]:
        with self.kube.changed:
            return [o for path, o in self.kube.objects.items() if path.startswith(PODS + "/")]

    def vmi(self) -> dict[str, Any]:
        return self.kube.objects[VMI]

    def phase(self) -> str:
        return str(self.vmi()["status"]["phase"])

    def vmi_writes(self) -> int:
        return len([1 for method, path in self.kube.methods("PATCH", "PUT") if path == VMI])

    def update_pod(self, **status: Any) -> None:
        (pod,) = self.pods()
        pod = dict(pod)
        pod["spec"] = pod["spec"] | {"nodeName": "node1"}
        pod["status"] = status
        self.kube.put(f"{PODS}/{pod['metadata']['name']}", pod)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        rig = Rig(stack.enter_context(fake_kube()))
        stack.enter_context(running(*rig.bodies))
        yield rig


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "compute", "state": state}]


def test_two_writes_and_one_pod_until_the_hand_over(rig: Rig) -> None:
    """The good path costs a Pod, the Scheduling write and the Scheduled write."""
    rig.kube.put(VMI, plain_vmi())
    eventually(lambda: rig.phase() == "Scheduling")
    assert len(rig.pods()) == 1
    rig.update_pod(phase="Pending", containerStatuses=container(waiting={"reason": "ContainerCreating"}))
    rig.update_pod(phase="Running", qosClass="Burstable", containerStatuses=container(running={}))
    eventually(lambda: rig.phase() == "Scheduled")
    vmi = rig.vmi()
    assert vmi["metadata"]["labels"][names.LABEL_NODE_NAME] == "node1"
    assert list(vmi["status"]["activePods"].values()) == ["node1"]
    eventually(lambda: any(o.get("reason") == "SuccessfulCreate" for o in list(rig.kube.objects.values())))
    assert rig.vmi_writes() == 2
    assert len([1 for method, path in rig.kube.methods("POST") if path == PODS]) == 1


def test_the_gate_of_its_pod_is_opened_once_and_again_when_somebody_closes_it(rig: Rig) -> None:
    def gate() -> str:
        (pod,) = rig.pods()
        told = (pod.get("status") or {}).get("conditions") or []
        return next((each["status"] for each in told if each["type"] == names.CONDITION_POD_UNPAUSED), "")

    def writes() -> int:
        return len([1 for _method, path in rig.kube.methods("PATCH", "PUT") if path.startswith(f"{PODS}/")])

    rig.kube.put(VMI, plain_vmi())
    eventually(lambda: rig.pods() and gate() == "True")
    told = [{"type": names.CONDITION_POD_UNPAUSED, "status": "True"}]
    rig.update_pod(phase="Running", conditions=told, containerStatuses=container(running={}))
    eventually(lambda: rig.phase() == "Scheduled")
    assert writes() == 1
    closed = [{"type": names.CONDITION_POD_UNPAUSED, "status": "False"}]
    rig.update_pod(phase="Running", conditions=closed, containerStatuses=container(running={}))
    eventually(lambda: gate() == "True")
    assert writes() == 2


def test_the_pod_of_a_vm_costs_no_event(rig: Rig) -> None:
    """The VM's controller has told the start; with its two writes, three objects and this, a start stays below 15."""
    rig.kube.put(VMI, plain_vmi(metadata={"ownerReferences": [owner()]}))
    eventually(lambda: rig.phase() == "Scheduling")
    rig.update_pod(phase="Running", qosClass="Burstable", containerStatuses=container(running={}))
    eventually(lambda: rig.phase() == "Scheduled")
    rig.recorder.flush()
    assert [path for _, path in rig.kube.methods("POST")] == [PODS]
    assert rig.vmi_writes() == 2


def test_failed_creation_is_told_and_tried_again(rig: Rig) -> None:
    """Quota is full, then it is not."""
    refuse = [3]

    def quota(method: str, path: str, _query: dict[str, str], _body: Any) -> Any:
        if method == "POST" and path == PODS and refuse[0] > 0:
            refuse[0] -= 1
            return failure(403, "Forbidden", "exceeded quota")
        return None

    rig.kube.on_request = quota
    rig.kube.put(VMI, plain_vmi())
    eventually(lambda: any("exceeded quota" in c.get("message", "") for c in rig.vmi()["status"].get("conditions", [])))
    eventually(lambda: rig.phase() == "Scheduling")
    assert all(c["type"] != "Synchronized" for c in rig.vmi()["status"]["conditions"])


def test_impossible_spec_fails_with_the_field(rig: Rig) -> None:
    rig.kube.put(VMI, plain_vmi(spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}))
    eventually(lambda: rig.phase() == "Failed")
    assert rig.vmi()["status"]["reason"] == "InvalidSpec"
    assert not rig.pods()


def test_a_device_that_is_not_permitted_is_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The VMI says for which; when the configuration permits it, the Pod is made."""
    monkeypatch.setattr("virt_controller.vmi.controller.PERMISSION_RECHECK_S", 0.05)
    devices = {"gpus": [{"name": "g", "deviceName": "example.com/gpu"}]}
    rig.kube.put(VMI, plain_vmi(spec={"domain": {"memory": {"guest": "64Mi"}, "devices": devices}}))
    path = "spec.domain.devices.gpus[0].deviceName"
    eventually(lambda: any(path in c.get("message", "") for c in rig.vmi()["status"].get("conditions", [])))
    assert not rig.pods()
    assert rig.phase() in (None, "", "Pending")
    permitted = {"pciHostDevices": [{"pciVendorSelector": "1:2", "resourceName": "example.com/gpu"}]}
    rig.cluster = ClusterConfig(permitted_host_devices=permitted)
    eventually(lambda: rig.phase() == "Scheduling")
    assert rig.pods()[0]["spec"]["containers"][0]["resources"]["limits"]["example.com/gpu"] == "1"
    rig.recorder.flush()
    told = [o for o in list(rig.kube.objects.values()) if o.get("reason") == "FailedCreate"]
    assert [event.get("count", 1) for event in told] == [1]


def test_a_foreign_pod_with_our_labels_is_not_ours(rig: Rig) -> None:
    """Labels are anybody's; only the controller reference counts."""
    fake = plain_pod(owner_uid="99999999-0000-0000-0000-000000000000", phase="Running")
    fake["metadata"]["labels"][names.LABEL_CREATED_BY] = UID
    rig.kube.put(f"{PODS}/virt-launcher-vm-abcde", fake)
    rig.kube.put(VMI, plain_vmi())
    eventually(lambda: rig.phase() == "Scheduling")
    assert len(rig.pods()) == 2


def test_a_false_launcher_is_turned_away_and_the_true_one_stays(rig: Rig) -> None:
    """Whoever may create Pods may name the VMI as their controller. Its record says which Pod is its own."""
    rig.kube.put(VMI, plain_vmi())
    eventually(lambda: rig.phase() == "Scheduling")
    (own,) = rig.pods()
    false = plain_pod(phase="Succeeded", metadata={"name": "false", "creationTimestamp": "2036-01-01T00:00:00Z"})
    rig.kube.put(f"{PODS}/false", false)
    eventually(lambda: [pod["metadata"]["uid"] for pod in rig.pods()] == [own["metadata"]["uid"]])
    eventually(lambda: any(o.get("reason") == names.EVENT_STRANGER for o in list(rig.kube.objects.values())))
    assert rig.phase() == "Scheduling"
    assert list(rig.vmi()["status"]["activePods"]) == [own["metadata"]["uid"]]


def test_a_stranger_that_cannot_be_deleted_does_not_hold_up_the_vmi(rig: Rig) -> None:
    def refuse(method: str, path: str, _query: dict[str, str], _body: Any) -> Any:
        return failure(403, "Forbidden", "kept by a policy") if (method, path) == ("DELETE", f"{PODS}/false") else None

    rig.kube.on_request = refuse
    rig.kube.put(f"{PODS}/false", plain_pod(phase="Running", metadata={"name": "false"}))
    rig.kube.put(VMI, plain_vmi())
    eventually(lambda: rig.phase() == "Scheduling")
    assert [pod["metadata"]["name"] for pod in rig.pods()].count("false") == 1
    assert len(rig.pods()) == 2


def test_a_record_that_did_not_get_through_is_written_again_for_the_same_pod(rig: Rig) -> None:
    refuse = [2]

    def conflict(method: str, path: str, _query: dict[str, str], _body: Any) -> Any:
        if method == "PATCH" and path == VMI and refuse[0] > 0:
            refuse[0] -= 1
            return failure(409, "Conflict", "somebody was faster")
        return None

    rig.kube.on_request = conflict
    rig.kube.put(VMI, plain_vmi())
    eventually(lambda: rig.phase() == "Scheduling")
    (own,) = rig.pods()
    assert list(rig.vmi()["status"]["activePods"]) == [own["metadata"]["uid"]]
    assert len([1 for method, path in rig.kube.methods("POST") if path == PODS]) == 1


def test_deletion_deletes_the_pod_then_the_finalizer(rig: Rig) -> None:
    rig.kube.put(VMI, plain_vmi())
    eventually(lambda: rig.phase() == "Scheduling")
    vmi = dict(rig.vmi())
    vmi["metadata"] = vmi["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:09Z"}
    rig.kube.put(VMI, vmi)
    eventually(lambda: not rig.pods())
    eventually(lambda: VMI not in rig.kube.objects)


def test_a_hundred_at_once(rig: Rig) -> None:
    """Each gets exactly one Pod."""
    for number in range(100):
        name = f"vm{number}"
        vmi = plain_vmi(name, metadata={"name": name, "uid": f"{number:08d}-0000-0000-0000-000000000000"})
        rig.kube.put(f"/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/{name}", vmi)
    eventually(lambda: len(rig.pods()) >= 100, within_s=20)
    eventually(lambda: all(o["status"].get("phase") == "Scheduling" for o in _vmis(rig)), within_s=20)
    assert len(rig.pods()) == 100
    assert len({p["metadata"]["ownerReferences"][0]["uid"] for p in rig.pods()}) == 100


def _vmis(rig: Rig) -> list[dict[str, Any]]:
    with rig.kube.changed:
        return [o for path, o in rig.kube.objects.items() if "/virtualmachineinstances/" in path]


def test_devices_follow_the_nodes() -> None:
    """One node with KVM is enough to ask for it; zero of a device is none."""
    template = TemplateConfig("example.internal/launcher:v1")
    slow = Node(status=NodeStatus(allocatable={names.RESOURCE_KVM: "0"}))
    fast = Node(status=NodeStatus(allocatable={names.RESOURCE_KVM: "1k", names.RESOURCE_VHOST_NET: "1000"}))
    assert not with_devices(template, [slow]).kvm
    assert with_devices(template, [slow, fast]).kvm
    assert with_devices(template, [slow, fast]).vhost_net


def test_template_knows_what_the_nodes_say_of_themselves() -> None:
    nodes = [Node(metadata=ObjectMeta(name=name, labels={"zone": name})) for name in ("a", "b")]
    template = with_devices(TemplateConfig("example.internal/launcher:v1"), nodes)
    assert list(template.node_labels) == [{"zone": "a"}, {"zone": "b"}]


def test_machines_of_chosen_namespaces_get_a_cpu_limit() -> None:
    with fake_kube() as kube:
        namespaces = Informer(kube.client(), Namespace)
        kube.put("/api/v1/namespaces/default", {"metadata": {"name": "default", "labels": {"limits": "yes"}}})
        with running(namespaces.run):
            eventually(lambda: namespaces.get("default") is not None)
            for selector, limited in (
                ({"matchLabels": {"limits": "yes"}}, True),
                ({"matchLabels": {"limits": "no"}}, False),
                ({}, True),
                (None, False),
            ):
                config = effective({"autoCPULimitNamespaceLabelSelector": selector} if selector is not None else {})
                assert limits_cpu("default", config, namespaces) is limited


def grown(**status: Any) -> dict[str, Any]:
    """It runs with one socket, and shall have two."""
    cpu = {"sockets": 2, "cores": 1, "threads": 1, "maxSockets": 4}
    known = {"nodeName": "node1", "activePods": {"aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee": "node1"}}
    known |= {"currentCPUTopology": {"sockets": 1, "cores": 1, "threads": 1}} | status
    return plain_vmi(phase="Running", status=known, spec={"domain": {"cpu": cpu, "memory": {"guest": "128Mi"}}})


def has(cpu: str, memory: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}}


def small_pod() -> dict[str, Any]:
    pod = plain_pod(phase="Running", state={"running": {}})
    pod["spec"] |= {"nodeName": "node1", "containers": [{"name": "compute", "resources": has("100m", "300Mi")}]}
    return pod


def with_pod(rig: Rig) -> str:
    """Its path, once the controller has seen it: else the Pod of a machine that runs would count as gone."""
    pod = small_pod()
    name = pod["metadata"]["name"]
    rig.kube.put(f"{PODS}/{name}", pod)
    eventually(lambda: rig.seen.get(f"default/{name}"))
    return f"{PODS}/{name}"


def hot(rig: Rig) -> dict[str, Any]:
    conditions = rig.vmi()["status"].get("conditions") or []
    return next((c for c in conditions if c["type"] == "HotVCPUChange"), {})


def test_the_pod_of_a_machine_that_grows_is_asked_for_more(rig: Rig) -> None:
    path = with_pod(rig)
    rig.kube.put(VMI, grown())
    eventually(lambda: rig.kube.objects[path]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m")
    assert ("PATCH", f"{path}/resize") in rig.kube.methods("PATCH")
    eventually(lambda: hot(rig).get("status") == "True")
    assert "podRoom" not in rig.vmi()["status"]
    larger = dict(rig.kube.objects[path])
    given = larger["spec"]["containers"][0]["resources"]
    state = {"name": "compute", "state": {"running": {}}, "resources": given, "allocatedResources": given["requests"]}
    rig.kube.put(path, larger | {"status": larger["status"] | {"containerStatuses": [state]}})
    eventually(lambda: rig.vmi()["status"].get("podRoom") == {"sockets": 2, "guest": "128Mi"})


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (403, "Forbidden", "exceeded quota"),
        (404, "NotFound", "Kubernetes 1.33 and newer can"),
        (422, "Invalid", "may not change"),
    ],
)
def test_a_pod_that_the_api_server_does_not_change_is_told(rig: Rig, code: int, reason: str, words: str) -> None:
    path = with_pod(rig)
    answer = failure(code, reason, words)
    rig.kube.on_request = lambda method, asked, *_: answer if (method, asked) == ("PATCH", f"{path}/resize") else None
    rig.kube.put(VMI, grown())
    eventually(lambda: hot(rig).get("reason") == "PodResizeRefused")
    assert words in hot(rig)["message"]
    eventually(lambda: any(o.get("reason") == "PodResizeRefused" for o in list(rig.kube.objects.values())))
