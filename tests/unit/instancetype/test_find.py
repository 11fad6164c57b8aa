"""Which instance type and preference hold, and what is stored of them."""

from __future__ import annotations

from typing import Any

import pytest
from framework.instancetypes import Objects, vm

from virt_core.apis.apps import ControllerRevision
from virt_core.apis.instancetype import (
    VirtualMachineClusterInstancetype,
    VirtualMachineClusterPreference,
    VirtualMachineInstancetype,
    VirtualMachinePreference,
)
from virt_core.instancetype import NotFoundError, capture, resolve, revision_for, same_content
from virt_core.instancetype.revisions import stored_revisions, wants_expansion

SPEC = {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}


def test_a_vm_without_either_has_neither(objects: Objects) -> None:
    found = resolve(vm(), objects)
    assert (found.instancetype, found.preference) == (None, None)


@pytest.mark.parametrize("kind", ["", "VirtualMachineClusterInstancetype", "virtualmachineclusterinstancetypes"])
def test_the_cluster_is_the_default(objects: Objects, kind: str) -> None:
    objects.put(VirtualMachineClusterInstancetype, "t", spec=SPEC)
    found = resolve(vm(instancetype={"name": "t", "kind": kind}), objects).instancetype
    assert found is not None
    assert found.cpu.guest == 2


def test_a_namespaced_one_is_looked_for_in_the_vms_namespace(objects: Objects) -> None:
    objects.put(VirtualMachineInstancetype, "t", "ns", spec=SPEC)
    objects.put(VirtualMachinePreference, "p", "ns", spec={"preferredSubdomain": "x"})
    machine = vm(
        instancetype={"name": "t", "kind": "VirtualMachineInstancetype"},
        preference={"name": "p", "kind": "VirtualMachinePreference"},
    )
    found = resolve(machine, objects)
    assert found.preference is not None
    assert found.preference.preferred_subdomain == "x"
    machine.metadata.namespace = "other"
    with pytest.raises(NotFoundError):
        resolve(machine, objects)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"instancetype": {"name": "no"}}, "spec.instancetype"),
        ({"preference": {"name": "no"}}, "spec.preference"),
        ({"instancetype": {"name": "t", "kind": "Gadget"}}, "spec.instancetype.kind"),
        ({"preference": {"name": "t", "kind": "VirtualMachineInstancetype"}}, "spec.preference.kind"),
        ({"instancetype": {"name": "t", "revisionName": "r"}}, "spec.instancetype.revisionName"),
    ],
)
def test_what_is_missing_is_named(objects: Objects, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve(vm(**fields), objects)
    assert caught.value.field == field


def test_a_revision_goes_before_the_object(objects: Objects) -> None:
    objects.put(VirtualMachineClusterInstancetype, "t", spec=SPEC)
    objects.put(ControllerRevision, "r", "ns", data={"spec": {**SPEC, "cpu": {"guest": 8}}})
    machine = vm(instancetype={"name": "t", "revisionName": "r"})
    found = resolve(machine, objects).instancetype
    assert found is not None
    assert found.cpu.guest == 8


@pytest.mark.parametrize(
    ("ref", "vcpus"),
    [
        ({"name": "t", "kind": "VirtualMachineClusterInstancetype"}, 8),
        ({"name": "t"}, 8),
        ({"name": "u", "kind": "VirtualMachineClusterInstancetype"}, 2),  # The VM names another one by now.
        ({"name": "t", "kind": "VirtualMachineInstancetype"}, 2),
    ],
)
def test_the_stored_revision_holds_while_the_vm_names_the_same(
    objects: Objects, ref: dict[str, Any], vcpus: int
) -> None:
    objects.put(VirtualMachineClusterInstancetype, "t", spec=SPEC)
    objects.put(ControllerRevision, "r", "ns", data={"spec": {**SPEC, "cpu": {"guest": 8}}})
    status = {"instancetypeRef": {**ref, "controllerRevisionRef": {"name": "r"}}}
    found = resolve(vm(instancetype={"name": "t"}, status=status), objects).instancetype
    assert found is not None
    assert found.cpu.guest == vcpus


def test_a_revision_that_cannot_be_read(objects: Objects) -> None:
    objects.put(ControllerRevision, "r", "ns", data={"spec": {"cpu": 7}})
    with pytest.raises(NotFoundError, match="cannot be read"):
        resolve(vm(instancetype={"name": "t", "revisionName": "r"}), objects)


def test_a_revision_tells_what_it_is_of(objects: Objects) -> None:
    kind = objects.put(
        VirtualMachineClusterInstancetype, "t", spec=SPEC, metadata={"labels": {"x": "y"}, "finalizers": ["f"]}
    )
    revision = revision_for(vm(), kind)
    meta = revision.metadata
    assert (meta.name, meta.namespace) == ("vm-t-v1beta1-uid-t-3", "ns")
    assert (meta.owner_references[0].uid, meta.owner_references[0].controller) == ("vm-uid", True)
    assert meta.labels == {
        "instancetype.kubevirt.io/object-generation": "3",
        "instancetype.kubevirt.io/object-kind": "VirtualMachineClusterInstancetype",
        "instancetype.kubevirt.io/object-name": "t",
        "instancetype.kubevirt.io/object-uid": "uid-t",
        "instancetype.kubevirt.io/object-version": "v1beta1",
    }
    assert revision.data is not None
    assert revision.data["kind"] == "VirtualMachineClusterInstancetype"
    assert revision.data["apiVersion"] == "instancetype.kubevirt.io/v1beta1"
    assert revision.data["spec"] == SPEC
    assert set(revision.data["metadata"]) == {"name", "uid", "generation"}


def test_capture_stores_both_and_refers_to_them(objects: Objects) -> None:
    objects.put(VirtualMachineClusterInstancetype, "t", spec=SPEC)
    objects.put(VirtualMachineClusterPreference, "p", spec={})
    machine = vm(instancetype={"name": "t"}, preference={"name": "p"})
    kept = capture(machine, objects)
    assert [revision.metadata.name for revision in kept.revisions] == ["vm-t-v1beta1-uid-t-3", "vm-p-v1beta1-uid-p-3"]
    assert kept.instancetype_ref is not None
    assert kept.preference_ref is not None
    assert kept.instancetype_ref.kind == "VirtualMachineClusterInstancetype"
    machine.status.instancetype_ref, machine.status.preference_ref = kept.instancetype_ref, kept.preference_ref
    again = capture(machine, objects)
    assert (again.revisions, again.instancetype_ref, again.preference_ref) == ((), None, None)


def test_a_stored_revision_outlives_its_object(objects: Objects) -> None:
    objects.put(VirtualMachineClusterInstancetype, "t", spec=SPEC)
    machine = vm(instancetype={"name": "t"})
    kept = capture(machine, objects)
    revision = kept.revisions[0]
    objects.stored.clear()
    objects.stored["ControllerRevision", "ns", revision.metadata.name] = revision
    machine.status.instancetype_ref = kept.instancetype_ref
    found = resolve(machine, objects).instancetype
    assert found is not None
    assert found.memory.guest == "1Gi"


def test_same_content_looks_at_the_spec_only(objects: Objects) -> None:
    kind = objects.put(VirtualMachineClusterInstancetype, "t", spec=SPEC)
    one = revision_for(vm(), kind)
    kind.metadata.resource_version = "9"
    assert same_content(one, revision_for(vm(), kind))
    kind.spec.cpu.guest = 4
    assert not same_content(one, revision_for(vm(), kind))


def test_policies() -> None:
    plain, named = vm(), vm(instancetype={"name": "t"})
    stored = vm(
        instancetype={"name": "t"}, status={"instancetypeRef": {"name": "t", "controllerRevisionRef": {"name": "r"}}}
    )
    for policy, expected in (
        ("reference", [False, False, False]),
        ("expand", [False, True, False]),
        ("expandAll", [False, True, True]),
    ):
        assert [wants_expansion(each, policy) for each in (plain, named, stored)] == expected
    assert stored_revisions(stored) == ["r"]
