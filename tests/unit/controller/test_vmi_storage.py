"""What a VMI waits for before its Pod is made, what its node is told about claims, and who has which vsock address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.vmis import POD_UID, plain_vmi, pod, running_pod, vmi
from framework.waiting import eventually, running

from virt_controller.launcher_pod import TemplateConfig
from virt_controller.vmi.controller import OWNER_INDEX, VMIController, owner_indexer
from virt_controller.vmi.decide import Decision, decide, provisioning, scheduling
from virt_controller.vmi.keptstate import STATE_INDEX, state_indexer
from virt_controller.vmi.owned import Surroundings
from virt_controller.vmi.surroundings import VOLUME_INDEX, vmi_volumes
from virt_controller.vmi.vsock import FIRST, LAST, CidBook, _free
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.registry import plain_object
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import get_condition
from virt_core.kube.controller import Controller
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock, SystemClock

NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
NAMESPACE = "/api/v1/namespaces/default"
VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"
CLAIM = f"{NAMESPACE}/persistentvolumeclaims/data"
DATA_VOLUME = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes/data"


def plain_claim(**more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "data", "namespace": "default", "annotations": {names.ANNOTATION_PREALLOCATION: "true"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **more},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}},
    }


def with_volume(source: dict[str, Any], **more: Any) -> VirtualMachineInstance:
    return vmi(spec={"volumes": [{"name": "disk", **source}]}, **more)


def status_of(decision: Decision, type: str) -> tuple[str, str]:
    assert decision.vmi is not None
    found = get_condition(decision.vmi.status.conditions, type)
    assert found is not None
    return found.status, found.reason


def test_the_node_is_told_what_a_claim_is() -> None:
    """It has no other way to know how large a missing disk should be."""
    claim = from_plain(plain_claim(), PersistentVolumeClaim)
    before = scheduling(with_volume({"persistentVolumeClaim": {"claimName": "data"}}), POD_UID, NOW)
    decision = decide(before, [running_pod()], NOW, Surroundings(claims={"data": claim}, vsock_cid=77))
    assert decision.vmi is not None
    (volume,) = decision.vmi.status.volume_status
    told = volume.persistent_volume_claim_info
    assert told is not None
    assert (volume.name, told.claim_name, told.volume_mode) == ("disk", "data", "Filesystem")
    assert (told.capacity, told.requests, told.preallocated) == ({"storage": "2Gi"}, {"storage": "1Gi"}, True)
    assert decision.vmi.status.vsock_cid == 77


def test_a_data_volume_is_waited_for_and_its_failure_is_the_end() -> None:
    before = with_volume({"dataVolume": {"name": "data"}})
    waits = decide(before, [], NOW, Surroundings(unready=("data",)))
    assert not waits.create_pod
    assert status_of(waits, names.CONDITION_DATA_VOLUMES_READY) == ("False", "NotAllDVsReady")
    assert waits.vmi is not None
    assert decide(waits.vmi, [], NOW, Surroundings()).create_pod
    ready = scheduling(waits.vmi, POD_UID, NOW)
    found = get_condition(ready.status.conditions, names.CONDITION_DATA_VOLUMES_READY)
    assert found is not None
    assert (found.status, found.reason) == ("True", "AllDVsReady")
    failed = decide(before, [], NOW, Surroundings(broken=("data",)))
    assert failed.vmi is not None
    assert (failed.vmi.status.phase, failed.vmi.status.reason) == ("Failed", names.REASON_DATA_VOLUME_IMPORT)


def helper(phase: str) -> Pod:
    found = pod(phase=phase)
    found.metadata.annotations[names.ANNOTATION_EPHEMERAL_PROVISIONING] = "true"
    return found


def test_a_claim_that_waits_for_its_first_user_gets_one_and_is_filled_before_the_launcher_comes() -> None:
    before, waiting = with_volume({"dataVolume": {"name": "data"}}), Surroundings(waiting=("data",))
    assert decide(before, [], NOW, waiting) == Decision(create_pod=True, provisioning=True)
    before = provisioning(before, POD_UID)
    for phase in ("Pending", "Succeeded"):
        decision = decide(before, [helper(phase)], NOW, waiting)
        assert not decision.create_pod
        assert status_of(decision, names.CONDITION_PROVISIONING)[0] == "True"
    assert not decide(before, [helper("Succeeded")], NOW, Surroundings(unready=("data",))).create_pod
    last = decide(before, [helper("Succeeded")], NOW, Surroundings())
    assert last.create_pod
    assert not last.provisioning
    assert len(last.delete_pods) == 1
    failed = decide(before, [helper("Failed")], NOW, waiting)
    assert failed.vmi is not None
    assert failed.vmi.status.phase == "Failed"
    assert scheduling(before, "launcher", NOW).status.provisioning_pod_uid == ""


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_a_false_first_user_neither_fails_a_machine_nor_stands_for_the_true_one(phase: str) -> None:
    """Whoever may create Pods may make one with the annotation and the owner, and let it fail."""
    before, waiting = with_volume({"dataVolume": {"name": "data"}}), Surroundings(waiting=("data",))
    false = helper(phase)
    false.metadata.uid = "false"
    decision = decide(before, [false], NOW, waiting)
    assert (decision.create_pod, decision.provisioning, decision.vmi) == (True, True, None)
    assert [each.metadata.uid for each in decision.strangers] == ["false"]
    recorded = provisioning(before, POD_UID)
    decision = decide(recorded, [helper("Pending"), false], NOW, waiting)
    assert not decision.create_pod
    assert status_of(decision, names.CONDITION_PROVISIONING)[0] == "True"
    assert [each.metadata.uid for each in decision.strangers] == ["false"]
    launcher = decide(recorded, [helper("Succeeded"), false], NOW, Surroundings())
    assert launcher.create_pod
    assert [each.metadata.uid for each in launcher.delete_pods] == [POD_UID]


class Rig:
    def __init__(self, kube: FakeKube) -> None:
        self.kube = kube
        client = kube.client()
        vmis = Informer(client, VirtualMachineInstance, indexers={VOLUME_INDEX: vmi_volumes})
        nodes, claims = (
            Informer(client, Node),
            Informer(client, PersistentVolumeClaim, indexers={STATE_INDEX: state_indexer}),
        )
        pods = Informer(client, Pod, label_selector="kubevirt.io=virt-launcher", indexers={OWNER_INDEX: owner_indexer})
        data_volumes = Informer(client, DataVolume, optional=True)
        queue, recorder = WorkQueue(SystemClock(), "vmi", max_delay_s=0.2), EventRecorder(client, "virt-controller")
        controller = VMIController(
            client,
            queue=queue,
            vmis=vmis,
            pods=pods,
            nodes=nodes,
            storage=claims,
            data_volumes=data_volumes,
            recorder=recorder,
            template=TemplateConfig("example.internal/launcher:v1"),
            clock=FakeClock(),
        )
        informers = [vmis, pods, nodes, claims, data_volumes]
        loop = Controller("vmi", queue, controller.reconcile, 2, informers)
        self.bodies = [*(each.run for each in informers), recorder.run, loop.run]

    def pods(self) -> list[dict[str, Any]]:
        with self.kube.changed:
            return [o for path, o in self.kube.objects.items() if path.startswith(f"{NAMESPACE}/pods/")]

    def condition(self, type: str) -> str:
        found = self.kube.objects[VMI].get("status", {}).get("conditions", [])
        return next((c["reason"] for c in found if c["type"] == type), "")


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        rig = Rig(stack.enter_context(fake_kube()))
        stack.enter_context(running(*rig.bodies))
        yield rig


def test_a_claim_that_comes_late_is_seen_when_it_comes(rig: Rig) -> None:
    rig.kube.put(VMI, plain_vmi(spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}))
    eventually(lambda: rig.condition("Synchronized") == names.REASON_PVC_NOT_FOUND)
    rig.kube.put(CLAIM, plain_claim(volumeMode="Block"))
    eventually(lambda: len(rig.pods()) == 1)
    (container,) = rig.pods()[0]["spec"]["containers"]
    assert container["volumeDevices"] == [{"name": "volume-0", "devicePath": "/dev/d"}]


def test_no_pod_before_a_data_volume_is_filled(rig: Rig) -> None:
    """The change of the DataVolume wakes the VMI: nothing is polled."""
    filling = {"metadata": {"name": "data", "namespace": "default"}, "status": {"phase": "ImportInProgress"}}
    rig.kube.put(DATA_VOLUME, filling)
    rig.kube.put(CLAIM, plain_claim())
    rig.kube.put(VMI, plain_vmi(spec={"volumes": [{"name": "d", "dataVolume": {"name": "data"}}]}))
    eventually(lambda: rig.condition("DataVolumesReady") == "NotAllDVsReady")
    assert rig.pods() == []
    rig.kube.put(DATA_VOLUME, filling | {"status": {"phase": "Succeeded"}})
    eventually(lambda: len(rig.pods()) == 1)


def test_the_first_user_of_a_claim_is_recorded_and_a_false_one_goes(rig: Rig) -> None:
    """The false one is there first, and has failed already."""
    waiting = {"metadata": {"name": "data", "namespace": "default"}, "status": {"phase": "WaitForFirstConsumer"}}
    rig.kube.put(DATA_VOLUME, waiting)
    rig.kube.put(CLAIM, plain_claim())
    spec = {"volumes": [{"name": "d", "dataVolume": {"name": "data"}}]}
    false = plain_object(helper("Failed"))
    false["metadata"] = {**false["metadata"], "name": "false", "uid": "false"}
    rig.kube.put(f"{NAMESPACE}/pods/false", false)
    rig.kube.put(VMI, plain_vmi(spec=spec))
    eventually(lambda: [each["metadata"]["name"] for each in rig.pods()] not in ([], ["false"]))
    eventually(lambda: all(each["metadata"]["name"] != "false" for each in rig.pods()))
    eventually(lambda: rig.kube.objects[VMI].get("status", {}).get("provisioningPodUID"))
    (own,) = rig.pods()
    status = rig.kube.objects[VMI]["status"]
    assert own["metadata"]["annotations"][names.ANNOTATION_EPHEMERAL_PROVISIONING] == "true"
    assert (status["provisioningPodUID"], status.get("phase", "")) == (own["metadata"]["uid"], "Pending")


def test_a_pod_goes_where_the_volume_of_a_claim_that_comes_later_is(rig: Rig) -> None:
    """A static local volume: nobody chose a node for its claim, and the scheduler does not see the claim in the Pod."""
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node2"]}]}]
    volume = {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
    rig.kube.put("/api/v1/persistentvolumes/pv", volume)
    rig.kube.put(CLAIM, plain_claim(volumeName="pv"))
    source = {"claimName": "data", "hotpluggable": True}
    rig.kube.put(VMI, plain_vmi(spec={"volumes": [{"name": "d", "persistentVolumeClaim": source}]}))
    eventually(lambda: len(rig.pods()) == 1)
    affinity = rig.pods()[0]["spec"]["affinity"]["nodeAffinity"]
    assert affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == terms


def guest(uid: str, cid: int | None = None, phase: str = "Running") -> VirtualMachineInstance:
    made = vmi(uid, metadata={"uid": uid}, spec={"domain": {"devices": {"autoattachVSOCK": True}}}, phase=phase)
    made.status.vsock_cid = cid
    return made


def test_no_two_guests_have_the_same_vsock_address() -> None:
    known = [guest(str(number), number + FIRST) for number in range(50)]
    book = CidBook(lambda: known)
    given = [book.of(guest(f"new-{number}")) for number in range(50)]
    # Those are not in any status yet.
    known += [guest(f"new-{number}") for number in range(50)]
    more = [book.of(guest(f"more-{number}")) for number in range(50)]
    taken = {each.status.vsock_cid for each in known if each.status.vsock_cid}
    assert not (taken & {*given, *more})
    assert all(cid is not None and FIRST <= cid <= LAST for cid in (*given, *more))


def test_an_address_stays_and_an_ended_guests_is_free_again() -> None:
    book = CidBook(list)
    first = book.of(guest("a"))
    assert book.of(guest("a", first)) == first
    assert book.of(vmi()) is None
    assert _free({*range(FIRST, 100)}) not in range(FIRST, 100)
    ended = [guest("old", 5, phase="Succeeded")]
    assert 5 not in {each.status.vsock_cid for each in ended if each.status.phase not in names.FINAL_PHASES}
