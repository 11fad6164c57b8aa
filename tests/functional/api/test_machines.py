"""What the verbs write: VM start, stop, restart, volumes, expansion, evacuation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from functional.api.rig import Rig, make_vm, make_vmi
from functional.api.test_http import BEARER, call

from virt_api.problems import Problem
from virt_api.subresources import volumes
from virt_core.apis.devices import Disk
from virt_core.apis.meta import OwnerReference, StatusCause, StatusDetails
from virt_core.apis.nodes import Node, NodeSpec, Taint
from virt_core.apis.vm import AddVolumeOptions, HotplugVolumeSource, RemoveVolumeOptions
from virt_core.kube.errors import Conflict, Invalid

PVC = {"name": "data", "disk": {"disk": {"bus": "scsi"}}, "volumeSource": {"persistentVolumeClaim": {"claimName": "c"}}}
DRY = {"dryRun": ["All"]}


def put(rig: Rig, sub: str, body: Any = None, *, vmi: bool = False) -> tuple[int, Any]:
    resource = "virtualmachineinstances" if vmi else "virtualmachines"
    data = None if body is None else json.dumps(body).encode()
    return call(rig, "PUT", rig.sub(sub, resource=resource), headers=BEARER, body=data)


def test_start_of_a_halted_vm_changes_its_strategy(rig: Rig) -> None:
    rig.client.vmis.clear()
    rig.client.vms["vm1"] = make_vm()
    assert put(rig, "start") == (202, "")
    assert rig.client.vms["vm1"].spec.run_strategy == "Always"
    (patch,) = rig.client.patches
    assert patch == (
        "VirtualMachine/vm1", "", {"metadata": {"resourceVersion": "1"}, "spec": {"runStrategy": "Always"}}, {},
    )  # fmt: skip


def test_a_vm_that_says_running_keeps_saying_so(rig: Rig) -> None:
    rig.client.vmis.clear()
    rig.client.vms["vm1"] = make_vm(strategy="")
    rig.client.vms["vm1"].spec.run_strategy, rig.client.vms["vm1"].spec.running = None, False
    assert put(rig, "start")[0] == 202
    assert (rig.client.vms["vm1"].spec.run_strategy, rig.client.vms["vm1"].spec.running) == (None, True)


def test_requests_go_to_the_status(rig: Rig) -> None:
    rig.client.vms["vm1"] = make_vm(strategy="Manual")
    assert put(rig, "restart")[0] == 202
    (patch,) = rig.client.patches
    requests = [{"action": "Stop", "uid": "uid-vm1"}, {"action": "Start"}]
    assert patch[:2] == ("VirtualMachine/vm1", "status")
    assert patch[2]["status"] == {"stateChangeRequests": requests}


def test_paused_start_carries_its_data(rig: Rig) -> None:
    rig.client.vmis.clear()
    rig.client.vms["vm1"] = make_vm(strategy="Manual")
    assert put(rig, "start", {"paused": True})[0] == 202
    assert rig.client.vms["vm1"].status.state_change_requests[0].data == {"paused": "true"}


def test_dry_run_is_judged_and_not_stored(rig: Rig) -> None:
    rig.client.vmis.clear()
    rig.client.vms["vm1"] = make_vm()
    assert put(rig, "start", DRY)[0] == 202
    assert rig.client.patches[0][3] == {"dryRun": "All"}
    assert rig.client.vms["vm1"].spec.run_strategy == "Halted"


def test_forced_stop_shortens_the_grace_first(rig: Rig) -> None:
    rig.client.vms["vm1"] = make_vm(strategy="Always")
    assert put(rig, "stop", {"gracePeriod": 0})[0] == 202
    assert [patch[0] for patch in rig.client.patches] == ["VirtualMachineInstance/vm1", "VirtualMachine/vm1"]
    assert rig.client.vmis["vm1"].spec.termination_grace_period_seconds == 0
    assert rig.client.vms["vm1"].spec.run_strategy == "Halted"


def test_forced_restart_that_fails_leaves_the_grace_as_it_was(rig: Rig) -> None:
    rig.client.vms["vm1"] = make_vm(strategy="Manual")
    rig.client.vmis["vm1"].spec.termination_grace_period_seconds = 77
    refusal = Invalid(422, "Invalid", "no", StatusDetails(causes=[StatusCause(field="status")]))

    def refuse(*args: Any, subresource: str = "", **more: Any) -> Any:
        if subresource == "status":
            raise refusal
        return real(*args, subresource=subresource, **more)

    real, rig.client.patch = rig.client.patch, refuse  # type: ignore[method-assign]
    status, body = put(rig, "restart", {"gracePeriodSeconds": 0})
    assert (status, body["details"]["causes"][0]["field"]) == (422, "status")
    assert rig.client.vmis["vm1"].spec.termination_grace_period_seconds == 77


def test_a_lost_race_is_run_again_and_not_for_ever(rig: Rig) -> None:
    rig.client.vms["vm1"] = make_vm(strategy="Manual")
    rig.client.patch_failures = [Conflict(409, "Conflict", "modified"), Invalid(422, "Invalid", "a test failed")]
    assert put(rig, "restart")[0] == 202
    assert len(rig.client.patches) == 3
    rig.client.vms["vm1"] = make_vm(strategy="Manual")
    rig.client.patch_failures = [Conflict(409, "Conflict", "modified")] * 20
    assert put(rig, "restart")[0] == 409


#: Nine levels of nine aliases each: 400 million words in 500 bytes.
BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    + ["spec: *a8"]
).encode()


@pytest.mark.parametrize("body", [BOMB, b"[" * 100_000, b'{"spec":' * 50_000, b"kind: VirtualMachine\n", b"\xff"])
def test_a_viewer_cannot_take_virt_api_down_with_a_body(rig: Rig, body: bytes) -> None:
    """expand-vm-spec is for everybody who may look; it read YAML, whose aliases stand for gigabytes."""
    url = f"{rig.url}/apis/subresources.kubevirt.io/v1/namespaces/default/expand-vm-spec"
    code, answer = call(rig, "PUT", url, headers=BEARER, body=body)
    assert (code, answer["message"]) == (400, "the body is not JSON")
    assert call(rig, "GET", f"{rig.url}/healthz")[0] == 200


def test_bodies_may_be_newer_than_we_are(rig: Rig) -> None:
    rig.client.vmis.clear()
    for body, expected in (
        (b'{"paused":true}', 202),
        (b"paused: true\n", 400),
        (b"[1]", 400),
        (b"{", 400),
        (b"paused: 5", 400),
        (b'{"x":1}', 202),
    ):
        rig.client.vms["vm1"] = make_vm(strategy="Manual")
        url = rig.sub("start", resource="virtualmachines")
        assert call(rig, "PUT", url, headers=BEARER, body=body)[0] == expected, body


def test_addvolume_changes_the_template_of_a_vm_that_does_not_run(rig: Rig) -> None:
    rig.client.vmis.clear()
    rig.client.vms["vm1"] = make_vm()
    assert put(rig, "addvolume", {**PVC, **DRY})[0] == 202
    assert put(rig, "addvolume", PVC)[0] == 202
    template = rig.client.vms["vm1"].spec.template
    assert template is not None
    (volume,) = template.spec.volumes
    assert volume.persistent_volume_claim is not None
    assert (volume.name, volume.persistent_volume_claim.hotpluggable) == ("data", True)
    (disk,) = template.spec.domain.devices.disks
    assert disk.name == "data"
    assert put(rig, "addvolume", PVC)[0] == 409
    assert put(rig, "addvolume", {**PVC, "name": "other"})[0] == 409, "the same claim twice"
    assert put(rig, "removevolume", {"name": "c"})[0] == 202, "by the name of the claim"
    changed = rig.client.vms["vm1"].spec.template
    assert changed is not None
    assert not changed.spec.volumes
    assert not changed.spec.domain.devices.disks
    assert put(rig, "removevolume", {"name": "c"})[0] == 409


def test_addvolume_takes_only_what_is_whole(rig: Rig) -> None:
    both = {"persistentVolumeClaim": {"claimName": "c"}, "dataVolume": {"name": "d"}}
    for body in (None, {}, {**PVC, "name": ""}, {**PVC, "volumeSource": {}}, {**PVC, "volumeSource": both}):
        assert put(rig, "addvolume", body)[0] == 400, body
    assert put(rig, "removevolume", {})[0] == 400


def test_the_volumes_of_a_running_machine_change(rig: Rig) -> None:
    """Of a VM by its template, of a VMI without one by its own spec."""
    rig.client.vms["vm1"] = make_vm(strategy="Always")
    assert put(rig, "addvolume", PVC)[0] == 202
    template = rig.client.vms["vm1"].spec.template
    assert template is not None
    assert [volume.name for volume in template.spec.volumes] == ["data"]
    assert put(rig, "addvolume", {**PVC, **DRY}, vmi=True)[0] == 202
    assert not rig.client.vmis["vm1"].spec.volumes
    assert put(rig, "addvolume", PVC, vmi=True)[0] == 202
    (volume,) = rig.client.vmis["vm1"].spec.volumes
    assert volume.persistent_volume_claim is not None
    assert volume.persistent_volume_claim.hotpluggable
    assert put(rig, "removevolume", {"name": "data"}, vmi=True)[0] == 202
    assert not rig.client.vmis["vm1"].spec.volumes


def test_a_removal_takes_back_an_adding_that_nobody_has_begun_with() -> None:
    add = AddVolumeOptions(name="data", disk=Disk(name="data"), volume_source=HotplugVolumeSource())
    remove = RemoveVolumeOptions(name="data")
    vm = make_vm()
    vm.status.volume_requests = volumes._queue(vm, add)
    with pytest.raises(Problem, match="already under way"):
        volumes._queue(vm, add)
    vm.status.volume_requests = volumes._queue(vm, remove)
    assert [request.remove_volume_options for request in vm.status.volume_requests] == [remove]
    for again in (add, remove):
        with pytest.raises(Problem, match="already under way"):
            volumes._queue(vm, again)


@pytest.mark.parametrize("sub", ["backup"])
def test_what_is_not_built_is_not_found_and_says_so(rig: Rig, sub: str) -> None:
    status, answer = put(rig, sub)
    assert status == 404
    assert "is not built yet" in answer["message"]
    url = rig.sub(sub, resource="virtualmachines")
    assert call(rig, "PUT", url)[0] == 401, "not for strangers"


def test_only_hotpluggable_volumes_go(rig: Rig) -> None:
    from virt_core.apis.volumes import VMIPersistentVolumeClaim, Volume

    rig.client.vmis.clear()
    rig.client.vms["vm1"] = make_vm()
    template = rig.client.vms["vm1"].spec.template
    assert template is not None
    template.spec.volumes = [Volume(name="root", persistent_volume_claim=VMIPersistentVolumeClaim(claim_name="root"))]
    status, answer = put(rig, "removevolume", {"name": "root"})
    assert status == 409
    assert "not hotpluggable" in answer["message"]


def test_expansion_of_a_vm_without_instance_type_is_itself(rig: Rig) -> None:
    rig.client.vms["vm1"] = make_vm()
    status, body = call(rig, "GET", rig.sub("expand-spec", resource="virtualmachines"), headers=BEARER)
    assert (status, body["kind"], body["metadata"]["name"]) == (200, "VirtualMachine", "vm1")


@pytest.mark.parametrize(
    ("vm", "expected"),
    [
        ({"spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}}}, 200),
        (None, 400),
        ({"kind": "Pod"}, 400),
        ({"metadata": {"namespace": "other"}, "spec": {"template": {"spec": {"domain": {"devices": {}}}}}}, 400),
        ({"spec": {"template": {"spec": {"domain": {"devices": {}, "nosuch": 1}}}}}, 400),
        ({"spec": {"instancetype": {"name": "none"}, "template": {"spec": {"domain": {"devices": {}}}}}}, 400),
    ],
)
def test_expansion_of_a_vm_in_the_body(rig: Rig, vm: Any, expected: int) -> None:
    url = f"{rig.url}/apis/subresources.kubevirt.io/v1/namespaces/default/expand-vm-spec"
    body = None if vm is None else json.dumps({"metadata": {"name": "new"}, **vm}).encode()
    status, answer = call(rig, "PUT", url, headers=BEARER, body=body)
    assert status == expected, answer
    if "nosuch" in str(vm):
        assert answer["details"]["causes"][0]["field"].endswith("domain.nosuch")


def test_evacuation_is_cancelled_unless_the_node_is_drained(rig: Rig) -> None:
    rig.client.vmis["vm1"].status.evacuation_node_name = "node1"
    assert put(rig, "evacuate/cancel", {"evacuationNodeName": "other"}, vmi=True)[0] == 200
    assert rig.client.vmis["vm1"].status.evacuation_node_name == "node1"
    known = rig.client.nodes["node1"]
    rig.client.nodes["node1"] = Node(
        metadata=known.metadata, spec=NodeSpec(taints=[Taint(key="kubevirt.io/drain", effect="NoSchedule")])
    )
    assert put(rig, "evacuate/cancel", {"evacuationNodeName": "node1"}, vmi=True)[0] == 400
    rig.client.nodes["node1"] = known
    assert put(rig, "evacuate/cancel", {"evacuationNodeName": "node1"}, vmi=True)[0] == 200
    assert rig.client.vmis["vm1"].status.evacuation_node_name == ""


def test_a_machine_without_a_mark_leaves_a_drained_node_all_the_same(rig: Rig) -> None:
    known = rig.client.nodes["node1"]
    assert put(rig, "evacuate/cancel", {"evacuationNodeName": "node1"}, vmi=True)[0] == 200
    rig.client.nodes["node1"] = Node(
        metadata=known.metadata, spec=NodeSpec(taints=[Taint(key="kubevirt.io/drain", effect="NoSchedule")])
    )
    assert put(rig, "evacuate/cancel", {"evacuationNodeName": "node1"}, vmi=True)[0] == 400


def test_commands_reach_the_node(rig: Rig) -> None:
    rig.node.agent = True
    for sub in ("softreboot", "reset", "unfreeze"):
        assert put(rig, sub, vmi=True)[0] == 200
    assert put(rig, "freeze", {"unfreezeTimeout": "1m30.5s"}, vmi=True)[0] == 200
    assert put(rig, "freeze", {"unfreezeTimeout": "0s"}, vmi=True)[0] == 200, "no limit"
    assert [name for name, _ in rig.node.commands] == ["softreboot", "reset", "unfreeze", "freeze 91", "freeze 0"]
    for bad in ("", "5", "-5s", "2h", "5 s", "five"):
        assert put(rig, "freeze", {"unfreezeTimeout": bad}, vmi=True)[0] == 400, bad


def test_soft_reboot_needs_somebody_who_hears(rig: Rig) -> None:
    from virt_core.apis.features import Features, FeatureState

    deaf = make_vmi()
    deaf.spec.domain.features = Features(acpi=FeatureState(enabled=False))
    rig.client.vmis["vm1"] = deaf
    code, answer = put(rig, "softreboot", vmi=True)
    assert code == 409
    assert "VMI neither have the agent connected nor the ACPI feature enabled" in answer["message"]
    rig.client.vmis["vm1"] = make_vmi(phase="Scheduled")
    assert put(rig, "reset", vmi=True)[0] == 400


def test_screen_users_and_filesystems(rig: Rig) -> None:
    status, image = call(rig, "GET", rig.sub("vnc/screenshot"), headers=BEARER)
    assert (status, "picture" in image) == (200, True)
    rig.client.vmis["vm1"] = make_vmi(conditions=("AgentConnected",))
    _, users = call(rig, "GET", rig.sub("userlist"), headers=BEARER)
    assert users["items"] == [{"userName": "root", "loginTime": 1.5}]
    _, filesystems = call(rig, "GET", rig.sub("filesystemlist"), headers=BEARER)
    assert filesystems["items"][0]["disk"] == [{"busType": "virtio", "serial": "s1"}]
    assert filesystems["items"][0]["totalBytes"] == 2


def test_a_snapshot_keeps_its_machine_paused(rig: Rig) -> None:
    rig.client.vmis["vm1"] = make_vmi(conditions=("Paused",))
    rig.client.vmis["vm1"].metadata.owner_references = [
        OwnerReference(api_version="kubevirt.io/v1", kind="VirtualMachine", name="vm1", uid="vm-vm1", controller=True)
    ]
    assert put(rig, "unpause", DRY, vmi=True)[0] == 200, "its VM is gone"
    rig.client.vms["vm1"] = make_vm()
    assert put(rig, "unpause", DRY, vmi=True)[0] == 200
    rig.client.vms["vm1"].status.snapshot_in_progress = "snap"
    assert put(rig, "unpause", DRY, vmi=True)[0] == 409
