"""The VM controller's way to instance types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.instancetypes import vm

from virt_controller.vm.expand import ExpansionError
from virt_controller.vm.instancetypes import InstancetypeExpander
from virt_core.kube.clusterconfig import effective
from virt_core.kube.typelookup import CachedLookup, KubeLookup

TYPES = "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes"
REVISIONS = "/apis/apps/v1/namespaces/ns/controllerrevisions"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as server:
        metadata = {"name": "t", "uid": "uid-t", "generation": 2}
        spec = {"cpu": {"guest": 4}, "memory": {"guest": "1Gi"}}
        server.put(f"{TYPES}/t", {"kind": "VirtualMachineClusterInstancetype", "metadata": metadata, "spec": spec})
        yield server


def expander(kube: FakeKube, policy: str = "reference") -> InstancetypeExpander:
    config = effective({"instancetype": {"referencePolicy": policy}})
    return InstancetypeExpander(kube.client(), KubeLookup(kube.client()), lambda: config)


def test_a_vm_without_types_costs_nothing(kube: FakeKube) -> None:
    found = expander(kube).expand(vm({"subdomain": "x"}))
    assert (found.spec.subdomain, found.annotations) == ("x", {})
    assert expander(kube).keep(vm()).revisions == ()
    assert kube.requests == []


def test_reference_stores_a_revision_and_shapes_the_vmi(kube: FakeKube) -> None:
    machine = vm(instancetype={"name": "t"})
    found = expander(kube).expand(machine)
    assert found.spec.domain.cpu is not None
    assert found.spec.domain.cpu.sockets == 4
    assert found.annotations == {"kubevirt.io/cluster-instancetype-name": "t"}
    kept = expander(kube).keep(machine)
    assert kept.instancetype_ref is not None
    assert kept.instancetype_ref.controller_revision_ref is not None
    name = kept.instancetype_ref.controller_revision_ref.name
    assert kube.objects[f"{REVISIONS}/{name}"]["data"]["spec"]["cpu"]["guest"] == 4
    assert expander(kube).keep(machine) == kept  # Again, before the status is written.


def test_what_was_stored_holds_against_a_change_of_the_type(kube: FakeKube) -> None:
    machine = vm(instancetype={"name": "t"})
    machine.status.instancetype_ref = expander(kube).keep(machine).instancetype_ref
    changed: dict[str, Any] = dict(kube.objects[f"{TYPES}/t"])
    kube.put(f"{TYPES}/t", changed | {"spec": {"cpu": {"guest": 9}, "memory": {"guest": "1Gi"}}})
    found = expander(kube).expand(machine)
    assert found.spec.domain.cpu is not None
    assert found.spec.domain.cpu.sockets == 4
    assert expander(kube).keep(machine).instancetype_ref is None


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"instancetype.kubevirt.io/object-version": "v1alpha2"},
    ],
)
def test_a_revision_of_an_older_form_is_stored_again_in_todays(kube: FakeKube, labels: dict[str, str]) -> None:
    """Earlier releases had no version in the name, and no label for it or another version."""
    machine = vm(
        instancetype={"name": "t"},
        status={"instancetypeRef": {"name": "t", "controllerRevisionRef": {"name": "vm-t-2"}}},
    )
    data = {
        "apiVersion": "instancetype.kubevirt.io/v1alpha2",
        "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "t", "uid": "uid-old", "generation": 1},
        "spec": {"cpu": {"guest": 7}, "memory": {"guest": "1Gi"}},
    }
    owners = [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-uid"}]
    metadata = {"name": "vm-t-2", "namespace": "ns", "labels": labels, "ownerReferences": owners}
    kube.put(f"{REVISIONS}/vm-t-2", {"metadata": metadata, "data": data})
    kept = expander(kube).keep(machine)
    machine.status.instancetype_ref = kept.instancetype_ref
    new = kube.objects[f"{REVISIONS}/vm-t-v1beta1-uid-old-1"]
    assert new["metadata"]["labels"]["instancetype.kubevirt.io/object-version"] == "v1beta1"
    assert new["data"]["apiVersion"] == "instancetype.kubevirt.io/v1beta1"
    shaped = expander(kube).expand(machine).spec
    assert shaped.domain.cpu is not None
    assert shaped.domain.cpu.sockets == 7
    expander(kube).forget(machine, kept.replaced)
    assert f"{REVISIONS}/vm-t-2" not in kube.objects
    assert expander(kube).keep(machine).revisions == ()


def test_a_revision_of_todays_form_under_another_name_is_left_alone(kube: FakeKube) -> None:
    ref = {"name": "t", "controllerRevisionRef": {"name": "mine"}}
    metadata = {"name": "mine", "namespace": "ns", "labels": {"instancetype.kubevirt.io/object-version": "v1beta1"}}
    kube.put(f"{REVISIONS}/mine", {"metadata": metadata, "data": {"spec": {}}})
    kept = expander(kube).keep(vm(instancetype={"name": "t"}, status={"instancetypeRef": ref}))
    assert (kept.instancetype_ref, kept.replaced) == (None, ())


def test_a_foreign_revision_under_our_name_is_not_believed(kube: FakeKube) -> None:
    kube.put(f"{REVISIONS}/vm-t-v1beta1-uid-t-2", {"metadata": {"name": "x", "namespace": "ns"}, "data": {"spec": {}}})
    with pytest.raises(ExpansionError, match="other content"):
        expander(kube).keep(vm(instancetype={"name": "t"}))


@pytest.mark.parametrize(
    ("template", "name", "message"),
    [
        ({}, "missing", "missing"),
        ({"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}, "t", r"domain\.memory\.guest"),
    ],
)
def test_what_is_missing_or_contradicts_is_told(kube: FakeKube, template: Any, name: str, message: str) -> None:
    with pytest.raises(ExpansionError, match=message):
        expander(kube).expand(vm(template, instancetype={"name": name}))


@pytest.mark.parametrize(("policy", "writes"), [("reference", False), ("expand", True), ("expandAll", True)])
def test_the_policy_decides_whether_the_values_go_into_the_vm(kube: FakeKube, policy: str, writes: bool) -> None:
    found = expander(kube, policy).written_out(vm(instancetype={"name": "t"}))
    assert bool(found) is writes
    if writes:
        spec = found[0]["value"]
        assert spec.instancetype is None
        assert spec.template.spec.domain.cpu.sockets == 4


def test_a_type_that_the_cache_does_not_have_yet_is_asked_for(kube: FakeKube) -> None:
    lookup = CachedLookup(kube.client())
    from virt_core.apis.instancetype import VirtualMachineClusterInstancetype

    assert lookup.get(VirtualMachineClusterInstancetype, "t") is not None
    assert lookup.get(VirtualMachineClusterInstancetype, "no") is None
    assert lookup.document("DataVolume", "no", "ns") is None
    assert len(lookup.informers) == 4


def stored(kube: FakeKube) -> tuple[Any, str]:
    """A VM whose type is kept as a revision, and that revision's path."""
    machine = vm(instancetype={"name": "t"})
    machine.status.instancetype_ref = ref = expander(kube).keep(machine).instancetype_ref
    assert ref is not None
    assert ref.controller_revision_ref is not None
    return machine, f"{REVISIONS}/{ref.controller_revision_ref.name}"


def test_a_stored_revision_keeps_a_vm_from_expand_but_not_from_expand_all(kube: FakeKube) -> None:
    """`expand` is for VMs that come; `expandAll` writes out those that are there too."""
    machine, _ = stored(kube)
    assert expander(kube, "expand").written_out(machine) == []
    assert expander(kube, "expandAll").written_out(machine)


def test_what_was_stored_goes_with_the_expansion(kube: FakeKube) -> None:
    machine, path = stored(kube)
    expander(kube).forget(machine)
    assert path in kube.objects
    machine.spec = expander(kube, "expandAll").written_out(machine)[0]["value"]
    expander(kube).forget(machine)
    assert path not in kube.objects
    expander(kube).forget(machine)


def test_a_revision_of_somebody_else_is_not_deleted(kube: FakeKube) -> None:
    machine, path = stored(kube)
    machine.spec.instancetype = None
    foreign = dict(kube.objects[path])
    foreign["metadata"] = foreign["metadata"] | {"ownerReferences": []}
    kube.put(path, foreign)
    expander(kube).forget(machine)
    assert path in kube.objects
