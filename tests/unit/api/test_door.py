"""The door in front of the webhooks: all that cannot be had is named at once, and what is stored stays usable."""

from __future__ import annotations

import copy
from typing import Any

from unit.api.fakecluster import FakeCluster, meta
from unit.api.reviews import TODAY_HOOKS, create, hooks, update, vm, vmi

from virt_core.apis.domain import NUMA, Hugepages, NUMAGuestMappingPassthrough, Realtime
from virt_core.apis.instancetype import (
    CPUInstancetype,
    MemoryInstancetype,
    VirtualMachineClusterInstancetype,
    VirtualMachineInstancetypeSpec,
)
from virt_core.apis.support.table import TODAY

TAG = "spec.template.spec.domain.devices.disks[0].tag"
VALIDATE = "/virtualmachines-validate"
CLAIM = {"name": "c", "resourceClaimName": "x"}


def tagged(**spec: Any) -> dict[str, Any]:
    found = vm(**spec)
    found["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]["tag"] = "front"
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
    stored = tagged(runStrategy="Always")
    stopped = copy.deepcopy(stored) | {"spec": {**stored["spec"], "runStrategy": "Halted"}}
    assert update(stopped, stored, VALIDATE, using=TODAY_HOOKS).code == 200
    more = copy.deepcopy(stopped)
    more["spec"]["template"]["spec"]["resourceClaims"] = [CLAIM]
    assert update(more, stored, VALIDATE, using=TODAY_HOOKS).causes == [
        ("spec.template.spec.resourceClaims", "FieldValueNotSupported")
    ]
    assert update(stored, vm(), VALIDATE, using=TODAY_HOOKS).fields == [TAG]


def test_one_that_is_being_deleted_passes() -> None:
    leaving = tagged()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert update(leaving, vm(), VALIDATE, using=TODAY_HOOKS).code == 200


def test_what_an_instance_type_asks_for_is_refused_at_the_vm() -> None:
    numa = NUMA(guest_mapping_passthrough=NUMAGuestMappingPassthrough())
    size = VirtualMachineInstancetypeSpec(
        cpu=CPUInstancetype(guest=2, dedicated_cpu_placement=True, numa=numa, realtime=Realtime()),
        memory=MemoryInstancetype(guest="1Gi", hugepages=Hugepages(page_size="2Mi")),
    )
    cluster = FakeCluster(VirtualMachineClusterInstancetype(metadata=meta("timely", ""), spec=size))
    typed = vm(instancetype={"name": "timely", "kind": "VirtualMachineClusterInstancetype"})
    del typed["spec"]["template"]["spec"]["domain"]["memory"]
    verdict = create(typed, using=hooks(cluster, support=TODAY))
    assert set(verdict.causes) == {("spec.instancetype", "FieldValueNotSupported")}
    assert "spec.domain.cpu.realtime" in verdict.message
    assert update(typed, typed, VALIDATE, using=hooks(cluster, support=TODAY)).code == 200
    assert create(typed, using=hooks(cluster)).code == 201
