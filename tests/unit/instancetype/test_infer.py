"""inferFromVolume, all the ways that lead to a label."""

from __future__ import annotations

from typing import Any

import pytest
from framework.instancetypes import Objects, vm

from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.instancetype import InferError, infer

L = "instancetype.kubevirt.io/default-"
LABELS = {f"{L}instancetype": "t", f"{L}instancetype-kind": "VirtualMachineInstancetype", f"{L}preference": "p"}
CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
VOLUME = [{"name": "v", "dataVolume": {"name": "d"}}]
BOTH = {"instancetype": {"inferFromVolume": "v"}, "preference": {"inferFromVolume": "v"}}


def claim(objects: Objects, name: str = "c", namespace: str = "ns", labels: dict[str, str] | None = None) -> None:
    objects.put(PersistentVolumeClaim, name, namespace, metadata={"labels": LABELS if labels is None else labels})


def check(machine: Any) -> None:
    assert (machine.spec.instancetype.name, machine.spec.instancetype.kind) == ("t", "VirtualMachineInstancetype")
    assert (machine.spec.preference.name, machine.spec.preference.kind) == ("p", "")
    assert machine.spec.instancetype.infer_from_volume == machine.spec.preference.infer_from_volume == ""


def test_a_vm_that_asks_for_nothing_is_left_alone(objects: Objects) -> None:
    machine = vm(instancetype={"name": "t"})
    assert infer(machine, objects) is machine


def test_from_a_claim(objects: Objects) -> None:
    claim(objects)
    machine = vm({"volumes": CLAIM}, **BOTH)
    check(infer(machine, objects))
    assert machine.spec.instancetype is not None
    assert machine.spec.instancetype.infer_from_volume == "v"  # The VM that was passed is not changed.


def test_from_a_data_volume(objects: Objects) -> None:
    objects.put_document("DataVolume", "d", metadata={"labels": LABELS})
    check(infer(vm({"volumes": VOLUME}, **BOTH), objects))


def test_from_the_claim_of_a_data_volume_that_is_gone(objects: Objects) -> None:
    claim(objects, "d")
    check(infer(vm({"volumes": VOLUME}, **BOTH), objects))


@pytest.mark.parametrize(
    "source",
    [
        {"source": {"pvc": {"name": "c", "namespace": "images"}}},
        {"source": {"snapshot": {"name": "s", "namespace": "images"}}},
        {"sourceRef": {"kind": "DataSource", "name": "labelled", "namespace": "images"}},
        {"sourceRef": {"kind": "DataSource", "name": "claim", "namespace": "images"}},
        {"sourceRef": {"kind": "DataSource", "name": "snapshot", "namespace": "images"}},
        {"sourceRef": {"kind": "DataSource", "name": "here"}},
    ],
)
@pytest.mark.parametrize("template", [True, False])
def test_from_what_a_data_volume_is_made_of(objects: Objects, source: dict[str, Any], template: bool) -> None:
    claim(objects, "c", "images")
    objects.put_document("VolumeSnapshot", "s", "images", metadata={"labels": LABELS})
    objects.put_document("DataSource", "labelled", "images", metadata={"labels": LABELS})
    objects.put_document("DataSource", "claim", "images", spec={"source": {"pvc": {"name": "c"}}})
    objects.put_document("DataSource", "snapshot", "images", spec={"source": {"snapshot": {"name": "s"}}})
    objects.put_document("DataSource", "here", "ns", metadata={"labels": LABELS})
    if template:
        machine = vm({"volumes": VOLUME}, dataVolumeTemplates=[{"metadata": {"name": "d"}, "spec": source}], **BOTH)
    else:
        objects.put_document("DataVolume", "d", metadata={}, spec=source)
        machine = vm({"volumes": VOLUME}, **BOTH)
    check(infer(machine, objects))


@pytest.mark.parametrize(
    ("volumes", "ignorable"),
    [
        ([], False),
        ([{"name": "v", "containerDisk": {"image": "x"}}], True),
        ([{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}], False),
        ([{"name": "v", "persistentVolumeClaim": {"claimName": "bare"}}], True),
        ([{"name": "v", "dataVolume": {"name": "blank"}}], True),
        ([{"name": "v", "dataVolume": {"name": "missing"}}], False),
    ],
)
def test_failures_and_what_ignoring_them_does(objects: Objects, volumes: list[Any], ignorable: bool) -> None:
    claim(objects, "bare", labels={})
    objects.put_document("DataVolume", "blank", metadata={}, spec={"source": {"blank": {}}})
    matcher = {"inferFromVolume": "v", "inferFromVolumeFailurePolicy": "Ignore"}
    for field in ("instancetype", "preference"):
        with pytest.raises(InferError) as caught:
            infer(vm({"volumes": volumes}, **{field: {"inferFromVolume": "v"}}), objects)
        assert caught.value.field == f"spec.{field}.inferFromVolume"
        machine = vm({"volumes": volumes}, **{field: matcher})
        if ignorable:
            assert getattr(infer(machine, objects).spec, field) is None
        else:
            with pytest.raises(InferError):
                infer(machine, objects)


def test_with_ignore_the_memory_was_only_for_the_case_of_failure(objects: Objects) -> None:
    claim(objects)
    domain = {"devices": {}, "memory": {"guest": "1Gi"}}
    matcher = {"inferFromVolume": "v", "inferFromVolumeFailurePolicy": "Ignore"}
    found = infer(vm({"volumes": CLAIM, "domain": domain}, instancetype=matcher), objects)
    assert found.spec.template is not None
    assert found.spec.template.spec.domain.memory is None
    kept = infer(vm({"volumes": CLAIM, "domain": domain}, instancetype={"inferFromVolume": "v"}), objects)
    assert kept.spec.template is not None
    assert kept.spec.template.spec.domain.memory is not None
