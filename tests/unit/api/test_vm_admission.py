"""VMs: what is filled in, what is refused, what is only warned about."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from unit.api.fakecluster import FakeCluster
from unit.api.reviews import CONFIG, CONTROLLER, create, hooks, update, vm, vmi

from virt_core.apis import names

INVALID, REQUIRED = "FieldValueInvalid", "FieldValueRequired"
NOT_FOUND, NOT_SUPPORTED = "FieldValueNotFound", "FieldValueNotSupported"
DV: dict[str, Any] = {"metadata": {"name": "dv"}, "spec": {"storage": {}, "source": {"blank": {}}}}


def with_domain(**domain: Any) -> dict[str, Any]:
    obj = vm()
    obj["spec"]["template"]["spec"]["domain"].update(domain)
    return obj


def with_data_volume(**entry: Any) -> dict[str, Any]:
    obj = vm(dataVolumeTemplates=[{**DV, **entry}])
    obj["spec"]["template"]["spec"]["volumes"].append({"name": "d1", "dataVolume": {"name": "dv"}})
    return obj


def test_a_vm_that_virt_controller_makes_is_a_users_all_the_same() -> None:
    """A pool, a snapshot's content or a patch of a clone says what is in it."""
    obj = vm(template={"metadata": {"labels": {"kubevirt.io/nodeName": "n"}}, "spec": vmi()["spec"]})
    assert create(obj, user=CONTROLLER).causes == [("spec.template.metadata.labels", NOT_SUPPORTED)]
    assert update(obj, obj, "/virtualmachines-validate", user=CONTROLLER).code == 200


def test_only_what_must_stay_the_same_is_kept_in_the_vm() -> None:
    template = create(vm()).admitted["spec"]["template"]
    assert template["metadata"] == {"labels": {"a": "b"}, "annotations": {"kubevirt.io/pci-topology-version": "v3"}}
    spec = template["spec"]
    assert spec["architecture"] == "amd64"
    assert spec["domain"]["machine"] == {"type": "q35"}
    assert len(spec["domain"]["firmware"]["uuid"]) == len(spec["domain"]["firmware"]["serial"]) == 36
    assert "cpu" not in spec["domain"]
    assert spec["volumes"] == vmi()["spec"]["volumes"]


def test_bare_fractions_are_quantities() -> None:
    """The API server checks the schema after the webhook, and that knows whole numbers and texts only."""
    sizes = {"cpu": 2.2, "memory": 222222222.2}
    admitted = create(with_domain(resources={"requests": sizes, "limits": {**sizes, "cpu": 3}})).admitted
    resources = admitted["spec"]["template"]["spec"]["domain"]["resources"]
    assert resources["requests"] == {"cpu": "2200m", "memory": "222222222200m"}
    assert resources["limits"] == {"cpu": 3, "memory": "222222222200m"}


def test_a_vm_is_made_with_its_finalizer() -> None:
    """It would cost each VM a write to get it later."""
    assert create(vm()).admitted["metadata"]["finalizers"] == [names.FINALIZER_VM_CONTROLLER]
    obj = vm()
    obj["metadata"]["finalizers"] = ["example.com/mine"]
    assert create(obj).admitted["metadata"]["finalizers"] == ["example.com/mine", names.FINALIZER_VM_CONTROLLER]
    changed = vm(runStrategy="Halted")
    assert "finalizers" not in update(changed, vm(), "/virtualmachines-mutate").admitted["metadata"]


def test_an_update_gets_no_new_identity() -> None:
    old = vm()
    admitted = update(vm(), old, "/virtualmachines-mutate").admitted
    assert "firmware" not in admitted["spec"]["template"]["spec"]["domain"]
    assert admitted["spec"]["template"]["spec"]["architecture"] == "amd64"


def test_template_metadata_may_hold_what_nobody_here_knows() -> None:
    obj = vm()
    obj["spec"]["template"]["metadata"]["creationTimestamp"] = None
    obj["spec"]["template"]["metadata"]["surprise"] = "kept"
    verdict = create(obj)
    assert verdict.code == 201, verdict.message
    assert verdict.admitted["spec"]["template"]["metadata"]["surprise"] == "kept"


def test_the_architecture_comes_from_the_image() -> None:
    source = {"metadata": {"labels": {"template.kubevirt.io/architecture": "arm64"}}}
    cluster = FakeCluster(documents={("DataSource", "img"): source})
    spec = {"storage": {}, "sourceRef": {"kind": "DataSource", "name": "img"}}
    admitted = create(with_data_volume(spec=spec), using={**hooks(cluster), "/virtualmachines-validate": _yes}).admitted
    assert admitted["spec"]["template"]["spec"]["architecture"] == "arm64"
    assert admitted["spec"]["template"]["spec"]["domain"]["machine"]["type"] == "virt"


def _yes(_: Any) -> None:
    return None


def test_running_is_warned_about() -> None:
    obj = vm(running=False)
    del obj["spec"]["runStrategy"]
    assert create(obj).warnings == ["spec.running is deprecated, please use spec.runStrategy instead."]
    assert create(vm()).warnings == []


def test_a_strategy_for_volumes_that_nobody_knows_is_warned_about() -> None:
    [warning] = create(vm(updateVolumesStrategy="Magic")).warnings
    assert "'Magic' is neither Migration nor Replacement" in warning
    for known in ("Migration", "Replacement"):
        assert create(vm(updateVolumesStrategy=known)).warnings == []


def test_a_device_that_is_not_permitted_is_taken_with_a_warning() -> None:
    """It may be permitted later; until then the machine waits."""
    obj = vm()
    obj["spec"]["template"]["spec"]["domain"]["devices"]["gpus"] = [{"name": "g", "deviceName": "example.com/t4"}]
    path = "spec.template.spec.domain.devices.gpus[0].deviceName"
    (warning,) = create(obj).warnings
    assert warning.startswith(f"{path}: 'example.com/t4' is not")
    (warning,) = create(vmi() | {"spec": obj["spec"]["template"]["spec"]}).warnings
    assert warning.startswith("spec.domain.devices.gpus[0].deviceName: ")
    permitted = {"usb": [{"resourceName": "example.com/t4"}]}
    assert create(obj, using=hooks(config=replace(CONFIG, permitted_host_devices=permitted))).warnings == []


def test_a_tag_of_which_nothing_tells_the_guest_is_taken_with_a_warning() -> None:
    obj = vm()
    spec = obj["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"][0]["tag"] = "front"
    [warning] = create(obj).warnings
    assert warning.startswith("spec.template.spec.domain.devices.disks[0].tag: only a cloudInitConfigDrive volume")
    spec["domain"]["devices"]["disks"].append({"name": "ci", "disk": {}})
    spec["volumes"].append({"name": "ci", "cloudInitConfigDrive": {"userData": "x"}})
    assert create(obj).warnings == []


@pytest.mark.parametrize("strategy", ["Halted", "Manual", "Always", "RerunOnFailure", "Once", "WaitAsReceiver"])
def test_run_strategies(strategy: str) -> None:
    assert create(vm(runStrategy=strategy)).code == 201


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("no template", {**vm(), "spec": {"runStrategy": "Halted"}}, "spec.template", REQUIRED),
    ("both", vm(running=True), "spec.running", INVALID),
    ("neither", vm(runStrategy=None), "spec.running", INVALID),
    ("strategy", vm(runStrategy="Never"), "spec.runStrategy", INVALID),
    ("unknown", vm(surprise=1), "spec.surprise", INVALID),
    ("hostname", vm(template={"spec": {**vmi()["spec"], "hostname": "A_b"}}), "spec.template.spec.hostname", INVALID),
    (
        "label",
        vm(template={"metadata": {"labels": {"kubevirt.io/nodeName": "n"}}, "spec": vmi()["spec"]}),
        "spec.template.metadata.labels",
        NOT_SUPPORTED,
    ),
    (
        "annotation",
        vm(template={"metadata": {"annotations": {"hooks.kubevirt.io/hookSidecars": "[]"}}, "spec": vmi()["spec"]}),
        "spec.template.metadata.annotations",
        INVALID,
    ),
    (
        "sockets",
        with_domain(cpu={"sockets": 4, "maxSockets": 2}),
        "spec.template.spec.domain.cpu.sockets",
        INVALID,
    ),
    (
        "small",
        with_domain(memory={"guest": "512Mi", "maxGuest": "2Gi"}),
        "spec.template.spec.domain.memory.guest",
        INVALID,
    ),
    (
        "shrinks",
        with_domain(memory={"guest": "2Gi", "maxGuest": "1Gi"}),
        "spec.template.spec.domain.memory.guest",
        INVALID,
    ),
    (
        "unaligned",
        with_domain(memory={"guest": "1025Mi", "maxGuest": "2Gi"}),
        "spec.template.spec.domain.memory.guest",
        INVALID,
    ),
    ("dv name", with_data_volume(metadata={}), "spec.dataVolumeTemplate[0].name", REQUIRED),
    ("dv claim", with_data_volume(spec={}), "spec.dataVolumeTemplate[0].PVC.Storage", INVALID),
    (
        "dv two claims",
        with_data_volume(spec={"pvc": {}, "storage": {}, "source": {"blank": {}}}),
        "spec.dataVolumeTemplate[0].PVC.Storage",
        INVALID,
    ),
    ("dv source", with_data_volume(spec={"pvc": {}}), "spec.dataVolumeTemplate[0].source.sourceRef", INVALID),
    (
        "dv two sources",
        with_data_volume(spec={"pvc": {}, "source": {"blank": {}, "http": {}}}),
        "spec.dataVolumeTemplate[0].source",
        INVALID,
    ),
    (
        "dv foreign",
        with_data_volume(spec={"pvc": {"dataSource": {"name": "x"}}, "source": {"blank": {}}}),
        "spec.dataVolumeTemplate[0].source",
        INVALID,
    ),
    ("dv unused", vm(dataVolumeTemplates=[DV]), "spec.dataVolumeTemplate[0]", REQUIRED),
    (
        "dv namespace",
        with_data_volume(metadata={"name": "dv", "namespace": "other"}),
        "spec.dataVolumeTemplates[0]",
        INVALID,
    ),
    ("matcher empty", vm(instancetype={}), "spec.instancetype", NOT_FOUND),
    ("matcher both", vm(preference={"name": "a", "inferFromVolume": "d0"}), "spec.preference.name", NOT_SUPPORTED),
    ("matcher kind", vm(preference={"kind": "a", "inferFromVolume": "d0"}), "spec.preference.kind", NOT_SUPPORTED),
    (
        "matcher policy",
        vm(instancetype={"name": "a", "inferFromVolumeFailurePolicy": "Maybe"}),
        "spec.instancetype.inferFromVolumeFailurePolicy",
        INVALID,
    ),
]


@pytest.mark.parametrize(("obj", "field", "type_"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_is_refused(obj: dict[str, Any], field: str, type_: str) -> None:
    verdict = create(obj)
    assert verdict.code == 422
    assert (field, type_) in verdict.causes, verdict.message


@pytest.mark.parametrize(
    "obj",
    [
        with_data_volume(),
        with_data_volume(metadata={"name": "dv", "namespace": "default"}),
        with_data_volume(spec={"pvc": {"dataSourceRef": {"name": "x"}}}),
        with_domain(memory={"guest": "1Gi", "maxGuest": "2Gi"}),
        with_domain(cpu={"sockets": 2, "maxSockets": 4}),
        vm(instancetype={"name": "not-there-yet"}),
    ],
)
def test_what_is_accepted(obj: dict[str, Any]) -> None:
    verdict = create(obj)
    assert verdict.code == 201, verdict.message


def test_a_gate_can_close_the_receivers_strategy() -> None:
    closed = replace(CONFIG, feature_gates=frozenset())
    verdict = create(vm(runStrategy="WaitAsReceiver"), using=hooks(config=closed))
    assert verdict.causes == [("spec.runStrategy", INVALID)]


def test_what_is_being_deleted_is_left_alone() -> None:
    obj = vm(runStrategy="Never")
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert update(obj, obj, "/virtualmachines-validate").code == 200
    assert update(obj, obj, "/virtualmachines-mutate").admitted == obj


@pytest.mark.parametrize(
    ("name", "revision", "refused"), [("new", "r1", True), ("new", "", False), ("new", "r2", False), ("a", "r1", False)]
)
def test_a_new_name_needs_a_new_revision(name: str, revision: str, refused: bool) -> None:
    old = vm(instancetype={"name": "a", "revisionName": "r1"})
    new = vm(instancetype={"name": name, "revisionName": revision})
    verdict = update(new, old, "/virtualmachines-mutate")
    assert verdict.causes == ([("spec.instancetype.revisionName", INVALID)] if refused else [])


@pytest.mark.parametrize(
    ("busy", "change", "refused"),
    [
        ("snapshotInProgress", {"runStrategy": "Always"}, True),
        ("restoreInProgress", {"runStrategy": "Always"}, True),
        ("restoreInProgress", {}, False),
        ("restoreInProgress", {"runStrategy": "Halted"}, False),
        ("snapshotInProgress", {}, False),
    ],
)
def test_a_vm_holds_still_while_it_is_copied(busy: str, change: dict[str, Any], refused: bool) -> None:
    old = {**vm(), "status": {busy: "x"}}
    new = {**vm(**change), "status": {busy: "x"}}
    for path in ("/virtualmachines-validate", "/status-validate"):
        assert update(new, old, path).causes == ([("spec", NOT_SUPPORTED)] if refused else [])


def test_volumes_hold_still_while_a_snapshot_is_taken() -> None:
    old = {**vm(), "status": {"snapshotInProgress": "x"}}
    new = copy.deepcopy(old)
    new["spec"]["template"]["spec"]["volumes"][0]["containerDisk"]["image"] = "other:1"
    assert update(new, old, "/virtualmachines-validate").causes == [("spec", NOT_SUPPORTED)]
