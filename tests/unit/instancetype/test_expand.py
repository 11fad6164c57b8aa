"""A VM written out in full."""

from __future__ import annotations

from typing import Any

import pytest
from framework.instancetypes import Objects, habit, size, spec, vm

from virt_core.apis.base import encode
from virt_core.apis.instancetype import VirtualMachineClusterInstancetype, VirtualMachineClusterPreference
from virt_core.apis.meta import ObjectMeta
from virt_core.instancetype import ConflictError, Found, annotations_for, check, expand_vm, shape

SPEC = {"cpu": {"guest": 4}, "memory": {"guest": "1Gi"}, "annotations": {"a": "1"}}
DISK = [{"name": "root", "containerDisk": {"image": "x:1"}}]


@pytest.fixture
def cluster(objects: Objects) -> Objects:
    objects.put(VirtualMachineClusterInstancetype, "t", spec=SPEC)
    preferred = {
        "cpu": {"preferredCPUTopology": "cores"},
        "devices": {
            "preferredDiskBus": "virtio",
            "preferredInterfaceModel": "e1000",
            "preferredAutoattachInputDevice": True,
        },
        "volumes": {"preferredStorageClassName": "fast"},
        "machine": {"preferredMachineType": "pc-q35-7.2"},
        "preferredArchitecture": "amd64",
    }
    objects.put(VirtualMachineClusterPreference, "p", spec=preferred)
    return objects


def test_a_vm_without_either_is_itself(cluster: Objects) -> None:
    machine = vm()
    assert expand_vm(machine, cluster) is machine


def test_expansion(cluster: Objects) -> None:
    template = {"metadata": {"name": "d"}, "spec": {"storage": {"resources": {}}}}
    machine = vm(
        {"volumes": DISK}, instancetype={"name": "t"}, preference={"name": "p"}, dataVolumeTemplates=[template]
    )
    before = encode(machine)
    found = expand_vm(machine, cluster, "masquerade")
    assert encode(machine) == before
    assert (found.spec.instancetype, found.spec.preference) == (None, None)
    assert found.spec.template is not None
    inner, meta = found.spec.template.spec, found.spec.template.metadata
    assert inner.domain.cpu is not None
    assert inner.domain.cpu.cores == 4
    assert inner.domain.machine is not None
    assert (inner.domain.machine.type, inner.architecture) == ("pc-q35-7.2", "amd64")
    # The preference reaches what came by itself, too.
    assert inner.domain.devices.disks[0].disk is not None
    assert inner.domain.devices.disks[0].disk.bus == "virtio"
    nic = inner.domain.devices.interfaces[0]
    assert (nic.name, nic.model, nic.masquerade is not None) == ("default", "e1000", True)
    assert inner.networks[0].pod is not None
    assert inner.domain.devices.inputs[0].name == "default-0"
    assert meta is not None
    assert meta.annotations == {"a": "1"}
    assert found.spec.data_volume_templates[0].spec["storage"]["storageClassName"] == "fast"


def test_expanding_twice_is_expanding_once(cluster: Objects) -> None:
    found = expand_vm(vm({"volumes": DISK}, instancetype={"name": "t"}), cluster)
    assert expand_vm(found, cluster) is found


def test_a_conflict_stops_it(cluster: Objects) -> None:
    machine = vm({"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}, instancetype={"name": "t"})
    with pytest.raises(ConflictError, match=r"memory\.guest") as caught:
        expand_vm(machine, cluster)
    assert [conflict.field for conflict in caught.value.conflicts] == ["spec.template.spec.domain.memory.guest"]


def test_check_tells_conflicts_and_requirements() -> None:
    machine = vm({"domain": {"devices": {}, "memory": {"guest": "1Gi"}}})
    found = check(machine, Found(size(2), habit(requirements={"cpu": {"guest": 4}})))
    assert [(conflict.field, conflict.unmet) for conflict in found] == [
        ("spec.template.spec.domain.memory.guest", False),
        ("spec.instancetype", True),
    ]
    assert check(machine, Found()) == []


@pytest.mark.parametrize(
    ("given", "nics"),
    [
        ({}, 1),
        ({"domain": {"devices": {"autoattachPodInterface": False}}}, 0),
        ({"networks": [{"name": "n", "pod": {}}]}, 0),
    ],
)
def test_a_nic_comes_by_itself_only_where_none_is_wanted_or_refused(given: dict[str, Any], nics: int) -> None:
    target = spec(**given)
    assert shape(target, ObjectMeta(), Found(size())) == []
    assert len(target.domain.devices.interfaces) == nics


def test_a_preference_can_refuse_the_nic() -> None:
    target = spec()
    shape(target, ObjectMeta(), Found(None, habit(devices={"preferredAutoattachPodInterface": False})))
    assert target.domain.devices.interfaces == []


def test_conflict_paths_follow_where_the_spec_stands() -> None:
    target = spec(domain={"devices": {}, "cpu": {"cores": 2}})
    assert shape(target, ObjectMeta(), Found(size()))[0].field == "spec.domain.cpu.cores"


def test_a_storage_class_that_is_named_stays(cluster: Objects) -> None:
    storage = {"metadata": {"name": "d"}, "spec": {"pvc": {"storageClassName": "slow"}, "storage": {}}}
    found = expand_vm(vm(preference={"name": "p"}, dataVolumeTemplates=[storage]), cluster)
    claims = found.spec.data_volume_templates[0].spec
    assert claims["pvc"]["storageClassName"] == "slow"
    assert claims["storage"]["storageClassName"] == "fast"


def test_annotations_of_the_vmi() -> None:
    machine = vm(instancetype={"name": "t"}, preference={"name": "p", "kind": "VirtualMachinePreference"})
    assert annotations_for(machine) == {
        "kubevirt.io/cluster-instancetype-name": "t",
        "kubevirt.io/preference-name": "p",
    }
    assert annotations_for(vm()) == {}
