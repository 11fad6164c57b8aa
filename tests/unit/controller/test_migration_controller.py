"""The migration controller at an API server that refuses what it asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from framework.fake_kube import FakeKube, failure, fake_kube
from framework.vmis import NODE, POD_UID, UID, plain_pod, plain_vmi
from framework.waiting import eventually, running

from virt_controller.hotplug.controller import LAUNCHER_INDEX, launcher_indexer
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.migration.controller import VMI_INDEX, MigrationController, vmi_indexer
from virt_controller.migration.volumes import Bringer
from virt_controller.vmi.controller import OWNER_INDEX, owner_indexer
from virt_controller.vmi.keptstate import StateKeeper
from virt_controller.vmi.surroundings import Looker
from virt_core.apis import names, podnetworks
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.nodes import Namespace, Node
from virt_core.apis.pods import Pod
from virt_core.apis.policy import MigrationPolicy
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.errors import ApiError
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock

SPACE = "/apis/kubevirt.io/v1/namespaces/default"
JOB, VMI = f"{SPACE}/virtualmachineinstancemigrations/move", f"{SPACE}/virtualmachineinstances/vm"
PODS = "/api/v1/namespaces/default/pods"
STARTED = "2026-01-01T00:00:00Z"


@contextmanager
def controller(kube: FakeKube) -> Iterator[MigrationController]:
    client, clock, config = kube.client(), FakeClock(), ClusterConfig()
    jobs = Informer(client, Job, indexers={VMI_INDEX: vmi_indexer})
    vmis = Informer(client, VirtualMachineInstance)
    pods = Informer(client, Pod, indexers={OWNER_INDEX: owner_indexer})
    attachments = Informer(
        client, Pod, label_selector="kubevirt.io=hotplug-disk", indexers={LAUNCHER_INDEX: launcher_indexer}
    )
    nodes, namespaces, policies = Informer(client, Node), Informer(client, Namespace), Informer(client, MigrationPolicy)
    claims, filled = Informer(client, PersistentVolumeClaim), Informer(client, DataVolume, optional=True)
    it = MigrationController(
        client,
        queue=WorkQueue(clock),
        jobs=jobs,
        vmis=vmis,
        pods=pods,
        nodes=nodes,
        namespaces=namespaces,
        policies=policies,
        look=Looker(None, None, None, vmis, StateKeeper(client, None, lambda: config, clock.now)),
        bringer=Bringer(client, attachments, claims, filled),
        attachments=attachments,
        recorder=EventRecorder(client, "virt-controller"),
        template=TemplateConfig("launcher:v1", kvm=True),
        clock=clock,
        config=lambda: config,
    )
    caches: tuple[Informer[Any], ...] = (jobs, vmis, pods, attachments, nodes, namespaces, policies, claims, filled)
    with running(*(each.run for each in caches)):
        eventually(lambda: all(each.has_synced() for each in caches))
        yield it


def put_machine(kube: FakeKube, **status: Any) -> None:
    plain = plain_vmi("vm", "Running")
    plain["status"] |= {"nodeName": NODE, "activePods": {POD_UID: NODE}, **status}
    kube.put(VMI, plain)
    kube.put(f"{PODS}/source", pod("source", POD_UID))


def pod(name: str, uid: str, **labels: str) -> dict[str, Any]:
    plain = plain_pod(UID, "Running")
    plain["metadata"] |= {"name": name, "uid": uid}
    plain["metadata"]["labels"] = plain["metadata"].get("labels", {}) | labels
    return plain


def put_job(kube: FakeKube, phase: str, **meta: Any) -> None:
    head = {"name": "move", "namespace": "default", "uid": "job", "finalizers": [names.FINALIZER_MIGRATION], **meta}
    kube.put(JOB, {"metadata": head, "spec": {"vmiName": "vm"}, "status": {"phase": phase}})


def condition(kube: FakeKube, type: str) -> dict[str, Any]:
    found = kube.objects[JOB]["status"].get("conditions", [])
    return dict(next((each for each in found if each["type"] == type), {}))


def told(kube: FakeKube, reason: str) -> bool:
    return any(each.get("reason") == reason for each in list(kube.objects.values()))


def test_the_end_of_the_pod_that_the_guest_left_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the job that took the guest away, though that has not made the Pod, and is over."""
    with fake_kube() as kube:
        move = {"migrationUid": "job", "sourcePod": "source", "targetNode": "node2", "completed": True}
        put_machine(kube, nodeName="node2", activePods={"other": "node2"}, migrationState=move)
        put_job(kube, "Succeeded")
        with controller(kube) as it:
            heard: list[str] = []
            monkeypatch.setattr(it._queue, "add", heard.append)
            ended = pod("source", POD_UID)
            ended["metadata"].setdefault("annotations", {})[names.ANNOTATION_DOMAIN] = "vm"
            ended["status"]["phase"] = "Succeeded"
            kube.put(f"{PODS}/source", ended)
            eventually(lambda: "default/move" in heard)
            it.reconcile("default/move")
        assert f"{PODS}/source" not in kube.objects


def test_a_quota_without_room_is_waited_for() -> None:
    answer = failure(403, "Forbidden", 'pods "virt-launcher-vm-abcde" is forbidden: exceeded quota: small, used: cpu=1')
    with fake_kube() as kube:
        put_machine(kube)
        put_job(kube, "")
        with controller(kube) as it:
            kube.on_request = lambda method, path, *_: answer if (method, path) == ("POST", PODS) else None
            again = it.reconcile("default/move")
            assert again is not None, "it is looked at again"
            assert kube.objects[JOB]["status"]["phase"] == "Pending"
            rejected = condition(kube, "migrationRejectedByResourceQuota")
            assert (rejected["status"], rejected["message"]) == ("True", "exceeded quota: small, used: cpu=1")
            eventually(lambda: told(kube, "FailedCreate"))
            kube.on_request = None
            it.reconcile("default/move")
            assert kube.objects[JOB]["status"]["phase"] == "Scheduling"
            assert not condition(kube, "migrationRejectedByResourceQuota")
        assert ("POST", PODS) in kube.methods("POST")


def test_a_refusal_of_another_kind_is_raised() -> None:
    answer = failure(403, "Forbidden", "violates PodSecurity")
    with fake_kube() as kube:
        put_machine(kube)
        put_job(kube, "")
        with controller(kube) as it:
            kube.on_request = lambda method, path, *_: answer if (method, path) == ("POST", PODS) else None
            with pytest.raises(ApiError, match="violates PodSecurity"):
                it.reconcile("default/move")
            assert kube.objects[JOB]["status"]["phase"] == ""


@pytest.mark.parametrize(
    ("code", "reason", "alarmed"), [(403, "Forbidden", True), (409, "Conflict", False), (500, "InternalError", True)]
)
def test_an_abort_that_cannot_be_written_is_told(code: int, reason: str, alarmed: bool) -> None:
    sides = {"sourceNode": NODE, "targetNode": "node2", "sourcePod": "source", "targetPod": "target"}
    with fake_kube() as kube:
        put_machine(kube, migrationState={"migrationUid": "job", "startTimestamp": STARTED, **sides})
        kube.put(f"{PODS}/target", pod("target", "t", **{names.LABEL_MIGRATION_JOB_UID: "job"}))
        put_job(kube, "Running", deletionTimestamp=STARTED)
        with controller(kube) as it:
            answer = failure(code, reason, "not now")
            kube.on_request = lambda method, path, *_: answer if method == "PATCH" and path.startswith(VMI) else None
            with pytest.raises(ApiError, match="not now"):
                it.reconcile("default/move")
            kube.on_request = None
            if alarmed:
                eventually(lambda: told(kube, "FailedAbortMigration"))
            it.reconcile("default/move")
            assert kube.objects[VMI]["status"]["migrationState"]["abortRequested"]
            eventually(lambda: told(kube, "SuccessfulAbortMigration"))
        assert told(kube, "FailedAbortMigration") is alarmed


def test_a_target_is_told_which_device_it_got() -> None:
    """Its launcher has no other way to know which function of the node's card is on which network."""
    with fake_kube() as kube:
        put_machine(kube)
        machine = kube.objects[VMI]
        machine["spec"]["domain"]["devices"]["interfaces"] = [{"name": "blue", "sriov": {}}]
        machine["spec"]["networks"] = [{"name": "blue", "multus": {"networkName": "n"}}]
        kube.put(VMI, machine)
        put_job(kube, "Scheduling")
        target = pod("target", "there", **{names.LABEL_MIGRATION_JOB_UID: "job"})
        device = {"type": "pci", "pci": {"pci-address": "0000:65:00.2"}}
        entry = {"interface": podnetworks.interface_name("blue"), "device-info": device}
        target["metadata"]["annotations"] = {names.ANNOTATION_NETWORK_STATUS: json.dumps([entry])}
        kube.put(f"{PODS}/target", target)
        with controller(kube) as it:
            it.reconcile("default/move")
        said = json.loads(kube.objects[f"{PODS}/target"]["metadata"]["annotations"][names.ANNOTATION_NETWORK_INFO])
        assert said["interfaces"][0]["deviceInfo"]["pci"] == {"pci-address": "0000:65:00.2"}
        assert names.ANNOTATION_NETWORK_INFO not in kube.objects[f"{PODS}/source"]["metadata"].get("annotations", {})
