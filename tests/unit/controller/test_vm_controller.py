"""The VM controller against a small API server: what it makes, what it writes, and how often."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from framework.fake_kube import FakeKube, failure, fake_kube
from framework.vms import VM_UID, owner, plain_vm
from framework.waiting import eventually, running

from virt_controller.vm.actions import revision_owner
from virt_controller.vm.controller import VOLUME_INDEX, VMController
from virt_controller.vm.instancetypes import InstancetypeExpander
from virt_controller.vm.volumes import vm_volumes
from virt_core.apis import names
from virt_core.apis.apps import ControllerRevision
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.controller import Controller
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.typelookup import KubeLookup
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock, SystemClock

API = "/apis/kubevirt.io/v1/namespaces/default"
VM, VMI = f"{API}/virtualmachines/vm", f"{API}/virtualmachineinstances/vm"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"
TYPES = "/apis/instancetype.kubevirt.io/v1beta1/namespaces/default/virtualmachineinstancetypes"


class Rig:
    def __init__(self, kube: FakeKube) -> None:
        self.kube, self.clock, self.config = kube, FakeClock(), ClusterConfig()
        client = kube.client()
        vms = Informer(client, VirtualMachine, indexers={VOLUME_INDEX: vm_volumes})
        vmis = Informer(client, VirtualMachineInstance)
        claims, data_volumes = Informer(client, PersistentVolumeClaim), Informer(client, DataVolume, optional=True)
        revisions = Informer(
            client, ControllerRevision, label_selector="kubevirt.io=vm-revision", indexers={"owner": revision_owner}
        )
        queue = WorkQueue(SystemClock(), "vm", max_delay_s=0.2)
        self.recorder = EventRecorder(client, "virt-controller")
        controller = VMController(
            client,
            queue=queue,
            vms=vms,
            vmis=vmis,
            claims=claims,
            data_volumes=data_volumes,
            revisions=revisions,
            recorder=self.recorder,
            clock=self.clock,
            expand=InstancetypeExpander(client, KubeLookup(client), lambda: self.config),
        )
        informers = [vms, vmis, claims, data_volumes, revisions]
        loop = Controller("vm", queue, controller.reconcile, 4, informers)
        self.bodies = [*(each.run for each in informers), self.recorder.run, loop.run]

    def has(self, path: str) -> bool:
        return path in self.kube.objects

    def status(self) -> dict[str, Any]:
        return dict(self.kube.objects[VM].get("status") or {})

    def printable(self, word: str) -> None:
        eventually(lambda: self.status().get("printableStatus") == word)

    def change(self, path: str, **parts: dict[str, Any]) -> None:
        """As somebody else would: parts are laid over metadata, spec and status."""
        obj = json.loads(json.dumps(self.kube.objects[path]))
        for part, values in parts.items():
            obj[part] = (obj.get(part) or {}) | values
        self.kube.put(path, obj)

    def phase(self, phase: str, **status: Any) -> None:
        stamp = {"phase": phase, "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"}
        self.change(VMI, status={"phase": phase, "phaseTransitionTimestamps": [stamp], **status})

    def writes(self, path: str) -> int:
        return len([1 for _method, asked in self.kube.methods("PATCH", "PUT") if asked.removesuffix("/status") == path])


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        rig = Rig(stack.enter_context(fake_kube()))
        stack.enter_context(running(*rig.bodies))
        yield rig


def test_a_start_costs_two_writes_two_objects_and_one_event(rig: Rig) -> None:
    """Starting, then Running; a revision and the VMI. The finalizer came with the VM, from the webhook."""
    rig.kube.put(VM, plain_vm())
    rig.printable("Starting")
    assert rig.has(f"{REVISIONS}/revision-start-vm-{VM_UID}-1")
    vmi = rig.kube.objects[VMI]
    assert vmi["metadata"]["ownerReferences"][0]["uid"] == VM_UID
    waits = [
        {"type": "Ready", "status": "False", "reason": "GuestNotRunning", "message": "the guest is not running yet"}
    ]
    told = {c["type"]: c for c in rig.status()["conditions"]}["Ready"]
    rig.phase("Scheduling", conditions=[waits[0] | {"lastTransitionTime": told["lastTransitionTime"]}])
    rig.phase("Scheduled")
    rig.phase("Running", conditions=[{"type": "Ready", "status": "True"}])
    rig.printable("Running")
    assert rig.status()["ready"] is True
    assert rig.writes(VM) == 2
    assert rig.writes(VMI) == 0
    eventually(lambda: len(rig.kube.methods("POST")) == 3)
    made = sorted(path.rsplit("/", 1)[1] for _, path in rig.kube.methods("POST"))
    assert made == ["controllerrevisions", "events", "virtualmachineinstances"]


def test_a_vm_from_before_the_webhook_gets_its_finalizer(rig: Rig) -> None:
    rig.kube.put(VM, plain_vm(metadata={"finalizers": []}))
    rig.printable("Starting")
    assert rig.kube.objects[VM]["metadata"]["finalizers"] == [names.FINALIZER_VM_CONTROLLER]
    assert rig.writes(VM) == 2


def test_a_vmi_that_failed_early_is_written_down_before_it_goes(rig: Rig) -> None:
    rig.kube.put(VM, plain_vm())
    rig.printable("Starting")
    first = rig.kube.objects[VMI]["metadata"]["uid"]
    rig.phase("Failed")
    eventually(lambda: not rig.has(VMI))
    rig.printable("CrashLoopBackOff")
    assert rig.status()["startFailure"]["lastFailedVMIUID"] == first
    rig.clock.step(16)
    rig.change(VM, metadata={"annotations": {"nudge": "1"}})
    rig.printable("Starting")
    assert rig.kube.objects[VMI]["metadata"]["uid"] != first


def test_rerun_on_failure_asks_itself_to_start_again(rig: Rig) -> None:
    rig.kube.put(VM, plain_vm(strategy="RerunOnFailure"))
    rig.printable("Starting")
    first = rig.kube.objects[VMI]["metadata"]["uid"]
    rig.phase("Running")
    rig.printable("Running")
    rig.phase("Failed", phaseTransitionTimestamps=[{"phase": "Running"}])
    eventually(lambda: rig.has(VMI) and rig.kube.objects[VMI]["metadata"]["uid"] != first)
    eventually(lambda: not rig.status().get("stateChangeRequests"))


def test_a_start_request_wakes_a_halted_vm(rig: Rig) -> None:
    rig.kube.put(VM, plain_vm(strategy="Halted"))
    rig.printable("Stopped")
    assert not rig.has(VMI)
    rig.change(VM, status={"stateChangeRequests": [{"action": "Start"}]})
    eventually(lambda: rig.has(VMI))
    assert rig.kube.objects[VM]["spec"]["runStrategy"] == "Always"
    eventually(lambda: not rig.status().get("stateChangeRequests"))


def test_deletion_takes_the_vmi_first_then_the_finalizer(rig: Rig) -> None:
    rig.kube.put(VM, plain_vm())
    rig.printable("Starting")
    rig.change(VM, metadata={"deletionTimestamp": "2026-01-01T00:00:09Z"})
    eventually(lambda: rig.kube.objects[VMI]["metadata"].get("deletionTimestamp"))
    assert rig.has(VM)
    rig.kube.remove(VMI)
    eventually(lambda: not rig.has(VM))


def test_orphaning_leaves_the_vmi(rig: Rig) -> None:
    rig.kube.put(VM, plain_vm())
    rig.printable("Starting")
    finalizers = [names.FINALIZER_VM_CONTROLLER, "orphan"]
    rig.change(VM, metadata={"deletionTimestamp": "2026-01-01T00:00:09Z", "finalizers": finalizers})
    eventually(lambda: rig.kube.objects[VM]["metadata"]["finalizers"] == ["orphan"])
    assert rig.has(VMI)


def test_a_vmi_that_was_set_free_a_moment_ago_is_not_deleted(rig: Rig) -> None:
    """The garbage collector takes the VMI's owner away, then the VM's last obstacle. We hear of the second first."""
    rig.kube.put(VM, plain_vm())
    rig.printable("Starting")

    def hook(method: str, path: str, _query: dict[str, str], _body: Any) -> Any:
        if method == "DELETE" and path == VMI:
            rig.change(VMI, metadata={"ownerReferences": []})

    rig.kube.on_request = hook
    finalizers = [names.FINALIZER_VM_CONTROLLER]
    rig.change(VM, metadata={"deletionTimestamp": "2026-01-01T00:00:09Z", "finalizers": finalizers})
    eventually(lambda: not rig.has(VM))
    assert not rig.kube.objects[VMI]["metadata"].get("deletionTimestamp")


def test_an_ownerless_vmi_is_adopted_and_a_foreign_one_left_alone(rig: Rig) -> None:
    rig.kube.put(VMI, {"metadata": {"name": "vm"}, "spec": {"domain": {}}, "status": {"phase": "Running"}})
    rig.kube.put(VM, plain_vm())
    rig.printable("Running")
    assert rig.kube.objects[VMI]["metadata"]["ownerReferences"][0]["uid"] == VM_UID
    other = f"{API}/virtualmachines/other"
    foreign = {"metadata": {"name": "other", "ownerReferences": [owner("u", "VirtualMachineInstanceReplicaSet", "r")]}}
    rig.kube.put(f"{API}/virtualmachineinstances/other", foreign | {"status": {"phase": "Running"}})
    rig.kube.put(other, plain_vm("other", metadata={"name": "other", "uid": "u-other"}))
    eventually(
        lambda: "does not belong to this VM" in json.dumps(rig.kube.objects[other]["status"].get("conditions", []))
    )


def test_a_refused_vmi_is_told_and_tried_again(rig: Rig) -> None:
    refuse = [2]

    def hook(method: str, path: str, _query: dict[str, str], _body: Any) -> Any:
        if method == "POST" and path.endswith("/virtualmachineinstances") and refuse[0]:
            refuse[0] -= 1
            return failure(403, "Forbidden", "not today")
        return None

    rig.kube.on_request = hook
    rig.kube.put(VM, plain_vm())
    eventually(lambda: "not today" in json.dumps(rig.status().get("conditions", [])))
    rig.printable("Starting")
    assert "Failure" not in {c["type"] for c in rig.status()["conditions"]}


def test_a_changed_template_asks_for_a_restart(rig: Rig) -> None:
    rig.kube.put(VM, plain_vm())
    rig.printable("Starting")
    rig.phase("Running", virtualMachineRevisionName=f"revision-start-vm-{VM_UID}-1")
    rig.printable("Running")
    spec = plain_vm()["spec"]
    spec["template"]["spec"]["domain"]["chassis"] = {"asset": "7"}
    rig.change(VM, spec=spec, metadata={"generation": 2})
    eventually(lambda: "RestartRequired" in {c["type"] for c in rig.status()["conditions"]})
    rig.change(VM, spec=plain_vm()["spec"], metadata={"generation": 3})
    eventually(lambda: "RestartRequired" not in {c["type"] for c in rig.status()["conditions"]})
    eventually(lambda: rig.status()["observedGeneration"] == 3)


def test_new_marks_of_the_template_leave_the_vmis_generation(rig: Rig) -> None:
    """They are for the next VMI: this one was made from generation 1, and nothing of 2 has reached it."""
    rig.kube.put(VM, plain_vm())
    rig.printable("Starting")
    rig.phase("Running", virtualMachineRevisionName=f"revision-start-vm-{VM_UID}-1")
    rig.printable("Running")
    spec = plain_vm()["spec"]
    spec["template"]["metadata"] = {"labels": {"testkey": "testvalue"}}
    rig.change(VM, spec=spec, metadata={"generation": 2})
    eventually(lambda: rig.status()["desiredGeneration"] == 2)
    assert rig.status()["observedGeneration"] == 1
    assert rig.kube.objects[VMI]["metadata"]["annotations"][names.ANNOTATION_VM_GENERATION] == "1"
    assert "RestartRequired" not in {c["type"] for c in rig.status()["conditions"]}
    rig.change(VM, spec=plain_vm()["spec"], metadata={"generation": 3})
    eventually(lambda: rig.status()["observedGeneration"] == 3)


def start_small(rig: Rig) -> None:
    """A VM that takes its size from an instance type."""
    small = {"metadata": {"name": "small", "generation": 1}, "spec": {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}}
    rig.kube.put(f"{TYPES}/small", {"kind": "VirtualMachineInstancetype", **small})
    plain = plain_vm(spec={"instancetype": {"kind": "VirtualMachineInstancetype", "name": "small"}})
    del plain["spec"]["template"]["spec"]["domain"]["memory"]
    rig.kube.put(VM, plain)
    rig.printable("Starting")


def test_an_instance_type_is_kept_and_applied(rig: Rig) -> None:
    start_small(rig)
    vmi = rig.kube.objects[VMI]
    assert vmi["spec"]["domain"]["memory"]["guest"] == "1Gi"
    assert vmi["metadata"]["annotations"]["kubevirt.io/instancetype-name"] == "small"
    name = rig.status()["instancetypeRef"]["controllerRevisionRef"]["name"]
    assert rig.kube.objects[f"{REVISIONS}/{name}"]["data"]["spec"]["cpu"]["guest"] == 2


def test_expand_all_writes_out_a_vm_that_runs_and_leaves_nothing_behind(rig: Rig) -> None:
    """The values are in the VM, the names and the stored revision are gone, and the guest need not restart."""
    start_small(rig)
    name = rig.status()["instancetypeRef"]["controllerRevisionRef"]["name"]
    rig.phase("Running", virtualMachineRevisionName=f"revision-start-vm-{VM_UID}-1")
    rig.printable("Running")
    rig.config = replace(rig.config, reference_policy="expandAll")
    rig.change(VM, metadata={"annotations": {"nudge": "1"}})
    eventually(lambda: not rig.has(f"{REVISIONS}/{name}"))
    eventually(lambda: "instancetypeRef" not in rig.status())
    spec = rig.kube.objects[VM]["spec"]
    assert "instancetype" not in spec
    assert spec["template"]["spec"]["domain"]["memory"]["guest"] == "1Gi"
    assert rig.has(f"{REVISIONS}/revision-start-vm-{VM_UID}-1"), "that is of the running VMI, not of the type"
    assert not {"RestartRequired", "Failure"} & {c["type"] for c in rig.status()["conditions"]}


def test_expand_is_for_vms_that_come(rig: Rig) -> None:
    rig.config = replace(rig.config, reference_policy="expand")
    start_small(rig)
    assert "instancetype" not in rig.kube.objects[VM]["spec"]
    assert not [path for path in rig.kube.objects if path.startswith(REVISIONS) and "small" in path]


@pytest.mark.parametrize(
    ("field", "kind", "reason"),
    [
        ("instancetype", "VirtualMachineInstancetype", "FailedFindInstancetype"),
        ("preference", "VirtualMachinePreference", "FailedFindPreference"),
    ],
)
def test_what_a_vm_names_and_is_missing_is_told_until_it_comes(rig: Rig, field: str, kind: str, reason: str) -> None:
    plain = plain_vm(spec={field: {"kind": kind, "name": "none"}})
    del plain["spec"]["template"]["spec"]["domain"]["memory"]
    rig.kube.put(VM, plain)

    def failure_reasons() -> list[str]:
        return [c["reason"] for c in rig.status().get("conditions", []) if c["type"] == "Failure"]

    eventually(lambda: failure_reasons() == [reason])
    assert "'none'" in json.dumps(rig.status()["conditions"])
    assert not rig.has(VMI)
    spec = {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}} if field == "instancetype" else {}
    path = f"/apis/instancetype.kubevirt.io/v1beta1/namespaces/default/{kind.lower()}s/none"
    rig.kube.put(path, {"kind": kind, "metadata": {"name": "none", "generation": 1}, "spec": spec})
    rig.printable("Starting")
    assert failure_reasons() == []


def test_a_stored_type_of_an_older_form_is_replaced(rig: Rig) -> None:
    start_small(rig)
    name = rig.status()["instancetypeRef"]["controllerRevisionRef"]["name"]
    old = json.loads(json.dumps(rig.kube.objects[f"{REVISIONS}/{name}"]))
    old["metadata"] |= {"name": "vm-small-old", "labels": {}, "uid": "old"}
    old["data"]["metadata"]["uid"] = "another"
    rig.kube.put(f"{REVISIONS}/vm-small-old", old)
    ref = rig.status()["instancetypeRef"] | {"controllerRevisionRef": {"name": "vm-small-old"}}
    rig.change(VM, status={"instancetypeRef": ref})
    eventually(lambda: not rig.has(f"{REVISIONS}/vm-small-old"))
    new = rig.status()["instancetypeRef"]["controllerRevisionRef"]["name"]
    labels = rig.kube.objects[f"{REVISIONS}/{new}"]["metadata"]["labels"]
    assert labels["instancetype.kubevirt.io/object-version"] == "v1beta1"
    assert "another" in new


def test_data_volumes_without_their_add_on_are_a_failure(rig: Rig) -> None:
    templates = [{"metadata": {"name": "disk"}, "spec": {}}]
    volumes = [{"name": "root", "dataVolume": {"name": "disk"}}]
    plain = plain_vm(spec={"dataVolumeTemplates": templates})
    plain["spec"]["template"]["spec"]["volumes"] = volumes

    def no_cdi(_method: str, path: str, _query: dict[str, str], _body: Any) -> Any:
        return failure(404, "NotFound", "no such thing") if "cdi.kubevirt.io" in path else None

    rig.kube.on_request = no_cdi
    rig.kube.put(VM, plain)
    eventually(lambda: "the cluster has no CDI" in json.dumps(rig.status().get("conditions", [])))
    assert rig.status()["printableStatus"] == "DataVolumeError", "it did not stop: it cannot start"
    assert not rig.has(VMI)


def test_a_note_that_is_refused_does_not_have_the_memory_dumped_again(rig: Rig) -> None:
    """The volume stays where it is until the claim says what it holds."""
    claim = "/api/v1/namespaces/default/persistentvolumeclaims/dump"
    seen: list[list[str]] = []

    def hook(method: str, path: str, _query: dict[str, str], _body: Any) -> Any:
        if method == "PATCH" and path == claim and len(seen) < 2:
            seen.append([volume["name"] for volume in rig.kube.objects[VMI]["spec"]["volumes"]])
            return failure(403, "Forbidden", "not today")
        return None

    volume = {"name": "dump", "memoryDump": {"claimName": "dump", "hotpluggable": True}}
    rig.kube.put(claim, {"metadata": {"name": "dump", "namespace": "default"}})
    rig.kube.put(VM, plain_vm())
    rig.printable("Starting")
    told = {"claimName": "dump", "targetFileName": "f", "startTimestamp": "2026-01-01T12:00:00Z"}
    told["endTimestamp"] = told["startTimestamp"]
    template = rig.kube.objects[VM]["spec"]["template"]
    template = template | {"spec": template["spec"] | {"volumes": [volume]}}
    rig.change(VMI, spec={"volumes": [volume]})
    rig.phase("Running", volumeStatus=[{"name": "dump", "phase": "MemoryDumpCompleted", "memoryDumpVolume": told}])
    rig.kube.on_request = hook
    request = {"claimName": "dump", "phase": "InProgress"}
    rig.change(VM, spec={"template": template}, status={"memoryDumpRequest": request})
    eventually(lambda: rig.status()["memoryDumpRequest"]["phase"] == "Unmounting")
    assert seen == [["dump"], ["dump"]]
    assert rig.kube.objects[claim]["metadata"]["annotations"] == {names.ANNOTATION_MEMORY_DUMP: "f"}


def test_a_machine_is_hibernated_and_goes_on_at_its_next_start(rig: Rig) -> None:
    file = "vm-u-20260101-120000.machine.state"
    rig.kube.put(VM, plain_vm())
    rig.printable("Starting")
    rig.phase("Running", machine={"type": "pc-q35-7.2"})
    uid = rig.kube.objects[VMI]["metadata"]["uid"]
    rig.change(VM, status={"hibernation": {"phase": "Requested", "vmiUID": uid}})
    eventually(lambda: rig.status()["hibernation"]["phase"] == "Saving")
    claim = f"/api/v1/namespaces/default/persistentvolumeclaims/{rig.status()['hibernation']['claimName']}"
    assert claim in rig.kube.objects
    marked = lambda: rig.kube.objects[VMI]["metadata"].get("annotations", {}).get(names.ANNOTATION_SAVE_STATE)  # noqa: E731
    eventually(lambda: marked() == "hibernate")
    told = {"targetFileName": file, "endTimestamp": "2026-01-01T12:00:00Z"}
    volume = {"name": names.VOLUME_MACHINE_STATE, "phase": "MemoryDumpCompleted", "memoryDumpVolume": told}
    stamps = [{"phase": each, "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"} for each in ("Running", "Succeeded")]
    rig.phase("Succeeded", volumeStatus=[volume], phaseTransitionTimestamps=stamps)
    eventually(lambda: rig.status()["hibernation"]["phase"] == "Saved")
    assert rig.kube.objects[VM]["spec"].get("runStrategy") == "Halted"
    eventually(lambda: not rig.has(VMI))
    eventually(lambda: rig.status()["printableStatus"] == "Stopped")

    rig.change(VM, spec={"runStrategy": "Always"})
    eventually(lambda: rig.has(VMI))
    note = rig.kube.objects[VMI]["metadata"]["annotations"][names.ANNOTATION_RESUME_FROM]
    assert file in note
    rig.phase("Running")
    eventually(lambda: rig.status()["hibernation"]["phase"] == "Resumed")
    eventually(lambda: not rig.has(claim))


def test_a_vm_that_was_changed_is_not_started_over_its_state(rig: Rig) -> None:
    state = {"phase": "Saved", "claimName": "c", "fileName": "f.machine.state", "specDigest": "another"}
    rig.kube.put(VM, plain_vm("vm", "Halted", status={"hibernation": state}))
    eventually(lambda: "printableStatus" in rig.status())
    rig.change(VM, spec={"runStrategy": "Always"})

    def reason() -> str:
        found = [c for c in rig.status().get("conditions", []) if c["type"] == names.CONDITION_FAILURE]
        return str(found[0]["reason"]) if found else ""

    eventually(lambda: reason() == names.REASON_STATE_DOES_NOT_FIT)
    assert not rig.has(VMI)
    rig.change(VM, status={"hibernation": state | {"phase": "Discarded"}})
    eventually(lambda: rig.has(VMI))
    assert names.ANNOTATION_RESUME_FROM not in rig.kube.objects[VMI]["metadata"]["annotations"]
    eventually(lambda: "hibernation" not in rig.status())
