"""Admission of VMIs: what is filled in, what is refused and with which path, and who may change what."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from unit.api.reviews import (
    CONFIG,
    CREATE,
    HANDLER,
    MUTATOR,
    UPDATE,
    create,
    hooks,
    patched,
    review,
    vmi,
)

from virt_api.admission.causes import invalid
from virt_api.admission.review import MAX_CAUSES, BadReview, answer, refusal
from virt_core.apis import names
from virt_core.apis.admission import AdmissionRequest

CONTROLLER = "system:serviceaccount:virtpod:virt-controller"


def with_part(path: str, value: Any) -> dict[str, Any]:
    """The accepted VMI with one part set, e.g. `spec.domain.memory.guest`."""
    obj = vmi()
    *parents, last = path.split(".")
    node = obj
    for key in parents:
        node = node.setdefault(key, {})
    node[last] = value
    return obj


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("spec.surprise", 1, "spec.surprise"),
        ("spec.domain.devices.disks", [{"name": "d0", "speed": 9}], "spec.domain.devices.disks[0].speed"),
        ("spec.domain.memory.guest", "-128Mi", "spec.domain.memory.guest"),
        ("spec.domain.memory.guest", "a lot", "spec.domain.memory.guest"),
        ("spec.domain.memory.guest", [1], "spec.domain.memory.guest"),
        ("spec.domain.cpu", {"cores": "two"}, "spec.domain.cpu.cores"),
        ("spec.domain.cpu", {"cores": -2}, "spec.domain.cpu.cores"),
        ("spec.domain.cpu", 3, "spec.domain.cpu"),
        ("spec.domain.resources", {"limits": {"memory": "much"}}, "spec.domain.resources.limits.memory"),
        ("spec.volumes", [{"name": "d0", "containerDisk": {"image": "a"}, "emptyDisk": {"capacity": "1Gi"}}],
         "spec.volumes[0]"),
        ("spec.volumes", [{"name": "d0", "emptyDisk": {}}], "spec.volumes[0].emptyDisk.capacity"),
        ("spec.volumes", [{"name": "d0", "emptyDisk": {"capacity": "0"}}], "spec.volumes[0].emptyDisk.capacity"),
        ("spec.volumes", [{"name": "d0", "containerDisk": {"image": ""}}], "spec.volumes[0].containerDisk.image"),
        ("spec.domain.devices.disks", [{"name": "d0"}, {"name": "ghost"}], "spec.domain.devices.disks[1].name"),
        ("spec.networks", [{"name": "default", "pod": {"vmNetworkCIDR": "10.0.0.0/33"}}],
         "spec.networks[0].pod.vmNetworkCIDR"),
        ("spec.domain.firmware", {"kernelBoot": {"container": {"image": "i", "kernelPath": "k"}}},
         "spec.domain.firmware.kernelBoot.container.kernelPath"),
        ("spec.domain.firmware", {"kernelBoot": {"container": {"image": "i", "kernelPath": "/a/../k"}}},
         "spec.domain.firmware.kernelBoot.container.kernelPath"),
        ("spec.topologySpreadConstraints", [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
         "spec.topologySpreadConstraints[0].maxSkew"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_path(path: str, value: Any, field: str) -> None:
    verdict = create(with_part(path, value))
    assert verdict.code == 422
    assert verdict.fields == [field]
    assert field in verdict.message


KERNEL_BOOT = "spec.domain.firmware.kernelBoot.container"


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"image": "", "kernelPath": "/k"}, f"{KERNEL_BOOT} must be defined with an image"),
        (
            {"image": "i"},
            f"{KERNEL_BOOT} must be defined with at least one of the following: kernelPath, initrdPath",
        ),
    ],
)
def test_what_a_kernel_boot_lacks_is_said_in_the_words_that_clients_know(
    container: dict[str, str], message: str
) -> None:
    """The API server puts `denied the request: ` in front of it."""
    verdict = create(with_part("spec.domain.firmware", {"kernelBoot": {"container": container}}))
    assert (verdict.code, verdict.message) == (422, message)


@pytest.mark.parametrize("cpu", [{"requests": {"cpu": "1M", "memory": "1Ei"}}, {"cores": 1_000_000}])
def test_more_cpus_than_any_node_has_are_for_the_scheduler_to_refuse(cpu: dict[str, Any]) -> None:
    obj = vmi()
    if "requests" in cpu:
        obj["spec"]["domain"]["resources"] = cpu
        del obj["spec"]["domain"]["memory"]
    else:
        obj["spec"]["domain"]["cpu"] = cpu
    assert create(obj).code == 201


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.networks", [{"name": "default", "pod": {"vmNetworkCIDR": "10.10.010.0/24"}}]),
        ("spec.dnsConfig", {"nameservers": ["01.1.1.1"]}),
    ],
)
def test_leading_zeros_of_an_address_are_taken_as_decimal(path: str, value: Any) -> None:
    obj = with_part("spec.domain.devices.interfaces", [{"name": "default", "masquerade": {}}])
    obj["spec"]["networks"] = [{"name": "default", "pod": {}}]
    obj["spec"][path.removeprefix("spec.")] = value
    assert create(obj).code == 201


def test_all_mistakes_are_named_at_once() -> None:
    obj = vmi(hostname="UPPER", evictionStrategy="Never")
    obj["spec"]["domain"]["devices"]["disks"].append({"name": "ghost"})
    assert create(obj).fields == ["spec.hostname", "spec.domain.devices.disks[1].name", "spec.evictionStrategy"]


def test_form_mistakes_are_collected_too() -> None:
    obj = vmi(one=1, two=2)
    obj["spec"]["domain"]["memory"]["guest"] = "x"
    obj["extra"] = {}
    assert set(create(obj).fields) == {"extra", "spec.one", "spec.two", "spec.domain.memory.guest"}


def test_numbers_become_quantities_and_null_is_absent() -> None:
    obj = vmi(affinity=None)
    obj["spec"]["domain"]["memory"]["guest"] = 134217728
    obj["spec"]["domain"]["resources"] = {"limits": {"cpu": 2}, "requests": {"memory": "0.5Gi"}}
    admitted = create(obj).admitted["spec"]
    assert admitted["domain"]["memory"]["guest"] == "134217728"
    assert admitted["domain"]["resources"] == {"limits": {"cpu": "2"}, "requests": {"memory": "512Mi", "cpu": "2"}}
    assert admitted["domain"]["cpu"]["sockets"] == 2
    assert "affinity" not in admitted


def test_a_created_vmi_carries_phase_finalizer_and_handoff() -> None:
    admitted = create(vmi()).admitted
    status = admitted["status"]
    assert admitted["metadata"]["finalizers"] == ["kubevirt.io/foregroundDeleteVirtualMachine"]
    assert (status["phase"], status["runtimeUser"]) == ("Pending", 107)
    assert status["handoffs"] == [{"name": "accepted", "owner": "virt-api", "time": "2026-01-01T00:00:00.000000Z"}]


def test_metadata_that_we_do_not_know_survives() -> None:
    obj = vmi()
    obj["metadata"] |= {
        "labels": {"a": "b"},
        "annotations": {"x": "y"},
        "managedFields": [{"manager": "m"}],
        "future": 1,
    }
    metadata = create(obj).admitted["metadata"]
    assert metadata["future"] == 1
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"x": "y", "kubevirt.io/pci-topology-version": "v3"}


def test_a_defaulted_vmi_passes_its_own_defaulting_unchanged() -> None:
    once = create(vmi()).admitted
    again = patched(once, review(MUTATOR, once))
    assert again["spec"] == once["spec"]


def test_no_network_gets_the_pods() -> None:
    obj = vmi(networks=[])
    del obj["spec"]["domain"]["devices"]["interfaces"]
    admitted = create(obj).admitted["spec"]
    assert admitted["networks"] == [{"name": "default", "pod": {}}]
    assert admitted["domain"]["devices"]["interfaces"] == [{"name": "default", "bridge": {}}]


@pytest.mark.parametrize(
    ("image", "policy"),
    [("a", "Always"), ("a:latest", "Always"), ("a:1", "IfNotPresent"), ("a@sha256:x", "IfNotPresent")],
)
def test_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    admitted = create(vmi(volumes=[{"name": "d0", "containerDisk": {"image": image}}])).admitted
    assert admitted["spec"]["volumes"][0]["containerDisk"]["imagePullPolicy"] == policy


def test_arm64_has_its_own_defaults() -> None:
    admitted = create(vmi(architecture="arm64")).admitted["spec"]["domain"]
    assert admitted["machine"]["type"] == "virt"
    assert admitted["cpu"]["model"] == "host-passthrough"
    assert admitted["firmware"]["bootloader"] == {"efi": {"secureBoot": False}}


def update(new: dict[str, Any], old: dict[str, Any], user: str, **extra: list[str]) -> dict[str, Any]:
    named = {"authentication.kubernetes.io/node-name": extra["node"]} if "node" in extra else {}
    return review(UPDATE, new, old=old, user=user, extra=named)


def test_only_our_accounts_change_a_spec() -> None:
    old = create(vmi()).admitted
    new = copy.deepcopy(old)
    new["spec"]["terminationGracePeriodSeconds"] = 1
    refused = update(new, old, "alice")
    assert refused["status"]["details"]["causes"][0]["reason"] == "FieldValueNotSupported"
    assert update(new, old, CONTROLLER)["allowed"]
    assert update(old, old, "alice")["allowed"]


def test_limits_are_frozen_even_for_us() -> None:
    old = create(vmi()).admitted
    new = copy.deepcopy(old)
    new["spec"]["domain"]["cpu"]["maxSockets"] = 9
    refused = update(new, old, CONTROLLER)
    assert refused["status"]["details"]["causes"][0]["field"] == "spec.domain.cpu.maxSockets"


def test_a_users_change_of_the_status_is_undone() -> None:
    old = create(vmi()).admitted
    new = copy.deepcopy(old)
    new["status"]["phase"] = "Running"
    assert patched(new, review(MUTATOR, new, old=old, user="alice"))["status"] == old["status"]
    assert patched(new, review(MUTATOR, new, old=old, user=CONTROLLER))["status"]["phase"] == "Running"
    bare = {key: value for key, value in old.items() if key != "status"}
    assert "status" not in patched(new, review(MUTATOR, new, old=bare, user="alice"))


def test_the_same_manifest_applied_again_is_no_change() -> None:
    """kubectl sends the lists as they stand in the file, without the defaults that the stored ones got."""
    written = vmi()
    old = create(copy.deepcopy(written)).admitted
    new = copy.deepcopy(old)
    for name in ("disks", "interfaces"):
        if name in written["spec"]["domain"].get("devices", {}):
            new["spec"]["domain"]["devices"][name] = written["spec"]["domain"]["devices"][name]
    new["spec"]["volumes"] = written["spec"]["volumes"]
    assert new["spec"] != old["spec"]
    assert patched(new, review(MUTATOR, new, old=old, user="alice"))["spec"] == old["spec"]
    new["spec"]["volumes"] = [{"name": "d0", "containerDisk": {"image": "another:v1"}}]
    assert patched(new, review(MUTATOR, new, old=old, user="alice"))["spec"] != old["spec"]


def test_a_service_account_of_the_same_name_elsewhere_is_not_ours() -> None:
    old = create(vmi()).admitted
    new = copy.deepcopy(old)
    new["spec"]["hostname"] = "x"
    assert not update(new, old, "system:serviceaccount:default:virt-controller")["allowed"]


def test_a_node_speaks_for_its_own_machines_only() -> None:
    old = create(vmi()).admitted
    old["status"]["nodeName"] = "node1"
    new = copy.deepcopy(old)
    new["status"]["phase"] = "Running"
    assert update(new, old, HANDLER, node=["node1"])["allowed"]
    assert not update(new, old, HANDLER, node=["node2"])["allowed"]
    assert not update(new, old, HANDLER)["allowed"], "a token that names no node"
    new["status"]["nodeName"] = "node2"
    assert not update(new, old, HANDLER, node=["node1"])["allowed"]
    new["status"]["nodeName"] = "node1"
    new["status"]["migrationState"] = {"targetNode": "node1"}
    assert not update(new, old, HANDLER, node=["node1"])["allowed"]


def test_steering_labels_are_ours() -> None:
    old = create(vmi()).admitted
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"kubevirt.io/nodeName": "node2"}
    assert not update(new, old, "alice")["allowed"]
    assert update(new, old, CONTROLLER)["allowed"]
    new["metadata"]["labels"] = {"mine": "yes"}
    assert update(new, old, "alice")["allowed"]


@pytest.mark.parametrize("name", names.RESTRICTED_ANNOTATIONS)
def test_what_a_machine_goes_on_from_is_ours_to_say(name: str) -> None:
    made = vmi()
    made["metadata"]["annotations"] = {name: "{}"}
    assert create(made).fields == ["metadata.annotations"]
    old = create(vmi()).admitted
    new = create(made, user=CONTROLLER).admitted
    assert not update(new, old, "alice")["allowed"]
    assert not update(old, new, "alice")["allowed"]
    assert update(new, new, "alice")["allowed"]


def test_a_long_list_of_causes_is_cut() -> None:
    status = refusal(AdmissionRequest(uid="x"), [invalid(f"f{i}", "bad") for i in range(MAX_CAUSES + 2)])
    assert status.details is not None
    assert len(status.details.causes) == MAX_CAUSES
    assert status.message.endswith("and 2 more validation errors")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"request":{}}', json.dumps({"request": {"uid": 1}}).encode()])
def test_what_is_no_review_is_said(body: bytes) -> None:
    with pytest.raises(BadReview):
        answer(body, CREATE)


def test_a_review_without_an_object_is_refused_not_crashed() -> None:
    body = msgspec.json.encode({"request": {"uid": "x", "operation": "CREATE"}})
    assert msgspec.json.decode(answer(body, MUTATOR))["response"]["allowed"] is False


def test_even_parity_is_the_clusters_wish_for_isolated_emulators() -> None:
    obj = vmi()
    cpu = {"cores": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}
    obj["spec"]["domain"] |= {"cpu": cpu, "resources": {"requests": {"memory": "128Mi"}, "limits": {"memory": "128Mi"}}}
    key = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
    aligned = replace(CONFIG, even_parity="", feature_gates=CONFIG.feature_gates | {"AlignCPUs"})
    assert create(obj, using=hooks(config=aligned)).admitted["metadata"]["annotations"][key] == ""
    for config in (CONFIG, replace(CONFIG, even_parity=""), replace(aligned, even_parity=None)):
        assert key not in create(obj, using=hooks(config=config)).admitted["metadata"]["annotations"]
    assert key not in create(vmi(), using=hooks(config=aligned)).admitted["metadata"]["annotations"]


def test_only_virt_controller_says_that_changed_blocks_are_tracked() -> None:
    tracking = {"state": "Initializing"}
    manifest = {**vmi(), "status": {"changedBlockTracking": tracking, "phase": "Running"}}
    assert "changedBlockTracking" not in create(manifest).admitted["status"]
    ours = create(manifest, user=CONTROLLER).admitted["status"]
    assert (ours["changedBlockTracking"], ours["phase"]) == (tracking, "Pending")
