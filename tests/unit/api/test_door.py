"""The door in front of the webhooks: all that cannot be had is named at once, and what is stored stays usable."""

from __future__ import annotations

import copy
from typing import Any

from unit.api.fakecluster import FakeCluster, meta
from unit.api.reviews import TODAY_HOOKS, create, hooks, update, vm, vmi

from virt_core.apis.instancetype import (
    CPUInstancetype,
    MemoryInstancetype,
    VirtualMachineClusterInstancetype,
    VirtualMachineInstancetypeSpec,
)
from virt_core.apis.support.table import TODAY

PINNED = "spec.template.spec.domain.cpu.dedicatedCpuPlacement"
VALIDATE = "/virtualmachines-validate"
CLAIM = {"name": "c", "resourceClaimName": "x"}


def pinned(**spec: Any) -> dict[str, Any]:
    found = vm(**spec)
    found["spec"]["template"]["spec"]["domain"]["cpu"] = {"dedicatedCpuPlacement": True}
    return found


def test_every_field_is_named_at_once_with_what_else_is_wrong() -> None:
    bad = vmi(resourceClaims=[CLAIM], hostname="No_Name")
    bad["spec"]["domain"]["cpu"] = {"numa": {"guestMappingPassthrough": {}}}
    bad["metadata"]["annotations"] = {"hooks.kubevirt.io/hookSidecars": "[]"}
    causes = create(bad, using=TODAY_HOOKS).causes
    assert set(causes) == {
        ("spec.resourceClaims", "FieldValueNotSupported"),
        ("spec.domain.cpu.numa", "FieldValueNotSupported"),
        ("metadata.annotations[hooks.kubevirt.io/hookSidecars]", "FieldValueNotSupported"),
        ("spec.hostname", "FieldValueInvalid"),
    }


def test_what_is_switched_off_is_not_asked_for() -> None:
    quiet = vmi()
    quiet["spec"]["domain"]["devices"]["disks"][0]["blockSize"] = {"matchVolume": {"enabled": False}}
    quiet["spec"]["domain"]["devices"] |= {"tpm": {"persistent": False}, "gpus": [], "filesystems": None}
    assert create(quiet, using=TODAY_HOOKS).code == 201


def test_a_vm_that_was_stored_before_can_be_stopped_but_gets_nothing_new() -> None:
    stored = pinned(runStrategy="Always")
    stopped = copy.deepcopy(stored) | {"spec": {**stored["spec"], "runStrategy": "Halted"}}
    assert update(stopped, stored, VALIDATE, using=TODAY_HOOKS).code == 200
    more = copy.deepcopy(stopped)
    more["spec"]["template"]["spec"]["resourceClaims"] = [CLAIM]
    assert update(more, stored, VALIDATE, using=TODAY_HOOKS).causes == [
        ("spec.template.spec.resourceClaims", "FieldValueNotSupported")
    ]
    assert update(stored, vm(), VALIDATE, using=TODAY_HOOKS).fields == [PINNED]


def test_one_that_is_being_deleted_passes() -> None:
    leaving = pinned()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert update(leaving, vm(), VALIDATE, using=TODAY_HOOKS).code == 200


def test_what_an_instance_type_asks_for_is_refused_at_the_vm() -> None:
    size = VirtualMachineInstancetypeSpec(
        cpu=CPUInstancetype(guest=2, dedicated_cpu_placement=True), memory=MemoryInstancetype(guest="1Gi")
    )
    cluster = FakeCluster(VirtualMachineClusterInstancetype(metadata=meta("pinned", ""), spec=size))
    typed = vm(instancetype={"name": "pinned", "kind": "VirtualMachineClusterInstancetype"})
    del typed["spec"]["template"]["spec"]["domain"]["memory"]
    verdict = create(typed, using=hooks(cluster, support=TODAY))
    assert verdict.causes == [("spec.instancetype", "FieldValueNotSupported")]
    assert "spec.domain.cpu.dedicatedCpuPlacement" in verdict.message
    assert update(typed, typed, VALIDATE, using=hooks(cluster, support=TODAY)).code == 200
    assert create(typed, using=hooks(cluster)).code == 201
