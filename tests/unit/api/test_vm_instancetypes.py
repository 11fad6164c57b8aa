"""VMs with instance types and preferences: conflicts, requirements, what is kept, what volumes say."""

from __future__ import annotations

from typing import Any

import pytest
from unit.api.fakecluster import FakeCluster, meta
from unit.api.reviews import CONTROLLER, create, hooks, vm

from virt_core.apis.base import from_plain
from virt_core.apis.instancetype import (
    CPUInstancetype,
    MemoryInstancetype,
    VirtualMachineClusterInstancetype,
    VirtualMachineInstancetypeSpec,
    VirtualMachinePreference,
)
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.apis.storage import PersistentVolumeClaim

INVALID, NOT_FOUND = "FieldValueInvalid", "FieldValueNotFound"


def _yes(_: Any) -> None:
    return None


def small() -> VirtualMachineClusterInstancetype:
    spec = VirtualMachineInstancetypeSpec(cpu=CPUInstancetype(guest=2), memory=MemoryInstancetype(guest="1Gi"))
    return VirtualMachineClusterInstancetype(metadata=meta("small", ""), spec=spec)


def preference(**spec: Any) -> VirtualMachinePreference:
    return VirtualMachinePreference(metadata=meta("pref"), spec=from_plain(spec, VirtualMachinePreferenceSpec))


PREFERENCE = {"name": "pref", "kind": "VirtualMachinePreference"}


def test_an_instance_type_and_the_vm_must_not_both_give_the_size() -> None:
    using = hooks(FakeCluster(small()))
    verdict = create(vm(instancetype={"name": "small"}), using=using)
    assert [type_ for _, type_ in verdict.causes] == [INVALID]
    assert verdict.fields[0].startswith("spec.template.spec.domain.memory")
    obj = vm(instancetype={"name": "small"})
    del obj["spec"]["template"]["spec"]["domain"]["memory"]
    assert create(obj, using=using).code == 201


def test_a_preferences_requirements_must_be_met() -> None:
    using = hooks(FakeCluster(preference(requirements={"memory": {"guest": "4Gi"}})))
    verdict = create(vm(preference=PREFERENCE), using=using)
    assert [type_ for _, type_ in verdict.causes] == [NOT_FOUND]


def test_a_preference_decides_what_the_vm_keeps() -> None:
    found = preference(
        preferredArchitecture="amd64",
        machine={"preferredMachineType": "pc-q35-8.0"},
        volumes={"preferredStorageClassName": "fast"},
    )
    wanted = {"metadata": {"name": "dv"}, "spec": {"storage": {}, "source": {"blank": {}}}}
    obj = vm(dataVolumeTemplates=[wanted], preference=PREFERENCE)
    obj["spec"]["template"]["spec"]["volumes"].append({"name": "d1", "dataVolume": {"name": "dv"}})
    admitted = create(obj, using=hooks(FakeCluster(found))).admitted
    assert admitted["spec"]["template"]["spec"]["domain"]["machine"]["type"] == "pc-q35-8.0"
    assert admitted["spec"]["dataVolumeTemplates"][0]["spec"]["storage"]["storageClassName"] == "fast"


def from_claim(labels: dict[str, str], **matcher: Any) -> tuple[dict[str, Any], FakeCluster]:
    obj = vm(instancetype={"inferFromVolume": "d1", **matcher})
    obj["spec"]["template"]["spec"]["volumes"].append({"name": "d1", "persistentVolumeClaim": {"claimName": "c"}})
    return obj, FakeCluster(PersistentVolumeClaim(metadata=meta("c", labels=labels)))


def test_a_volume_names_the_instance_type() -> None:
    obj, cluster = from_claim({"instancetype.kubevirt.io/default-instancetype": "huge"})
    assert create(obj, using=hooks(cluster)).admitted["spec"]["instancetype"]["name"] == "huge"


LABEL = {"instancetype.kubevirt.io/default-instancetype": "huge"}
ELSEWHERE = {
    "a claim": {"source": {"pvc": {"name": "c", "namespace": "victim"}}},
    "a snapshot": {"source": {"snapshot": {"name": "s", "namespace": "victim"}}},
    "an image": {"sourceRef": {"kind": "DataSource", "name": "img", "namespace": "victim"}},
    "a claim behind an image of one's own": {"sourceRef": {"kind": "DataSource", "name": "mine"}},
}


def from_elsewhere(source: dict[str, Any]) -> tuple[dict[str, Any], FakeCluster]:
    template = {"metadata": {"name": "dv"}, "spec": {"storage": {}, **source}}
    obj = vm(instancetype={"inferFromVolume": "d1"}, dataVolumeTemplates=[template])
    obj["spec"]["template"]["spec"]["volumes"].append({"name": "d1", "dataVolume": {"name": "dv"}})
    documents = {
        ("VolumeSnapshot", "s"): {"metadata": {"labels": LABEL}},
        ("DataSource", "img"): {"metadata": {"labels": LABEL}},
        ("DataSource", "mine"): {"metadata": {}, "spec": {"source": {"pvc": {"name": "c", "namespace": "victim"}}}},
    }
    return obj, FakeCluster(PersistentVolumeClaim(metadata=meta("c", "victim", labels=LABEL)), documents=documents)


@pytest.mark.parametrize("source", ELSEWHERE.values(), ids=ELSEWHERE)
def test_labels_of_another_namespace_are_not_told_to_who_may_not_read_them(source: dict[str, Any]) -> None:
    """Neither what they say nor whether the object is there."""
    obj, cluster = from_elsewhere(source)
    verdict = create(obj, using=hooks(cluster))
    assert verdict.code == 403
    cluster.objects.clear()
    cluster.documents = {key: value for key, value in cluster.documents.items() if key == ("DataSource", "mine")}
    assert create(obj, using=hooks(cluster)).message == verdict.message
    assert {user for user, _ in cluster.asked} == {"alice"}


@pytest.mark.parametrize("source", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("right", ["get", "create"])
def test_who_may_read_or_copy_it_there_may_use_it(source: dict[str, Any], right: str) -> None:
    obj, cluster = from_elsewhere(source)
    readable = ("persistentvolumeclaims", "volumesnapshots", "datasources")
    resources = readable if right == "get" else ("datavolumes",)
    cluster.rights = {("alice", right, resource, "victim") for resource in resources}
    assert create(obj, using=hooks(cluster)).admitted["spec"]["instancetype"]["name"] == "huge"


def test_our_own_accounts_do_not_look_elsewhere_for_others() -> None:
    """A pool makes VMs in the name of virt-controller, which may read everything."""
    obj, cluster = from_elsewhere(ELSEWHERE["a claim"])
    cluster.rights = {(CONTROLLER, "get", "persistentvolumeclaims", "victim")}
    assert create(obj, user=CONTROLLER, using=hooks(cluster)).code == 403


def test_a_volume_that_names_nothing_is_an_error_or_ignored() -> None:
    obj, cluster = from_claim({})
    verdict = create(obj, using=hooks(cluster))
    assert (verdict.code, verdict.causes) == (400, [])
    obj, cluster = from_claim({}, inferFromVolumeFailurePolicy="Ignore")
    assert "instancetype" not in create(obj, using=hooks(cluster)).admitted["spec"]


def test_what_is_ignored_on_failure_gives_way_on_success() -> None:
    label = {"instancetype.kubevirt.io/default-instancetype": "huge"}
    obj, cluster = from_claim(label, inferFromVolumeFailurePolicy="Ignore")
    admitted = create(obj, using={**hooks(cluster), "/virtualmachines-validate": _yes}).admitted
    assert "memory" not in admitted["spec"]["template"]["spec"]["domain"]
