"""The door in front of the webhooks: all that cannot be had is named at once, and what is stored stays usable."""

from __future__ import annotations

import copy
from typing import Any

from unit.api.fakecluster import FakeCluster, meta
from unit.api.reviews import TODAY_HOOKS, create, hooks, update, vm, vmi

from virt_core.apis.devices import GPU
from virt_core.apis.instancetype import (
    CPUInstancetype,
    MemoryInstancetype,
    VirtualMachineClusterInstancetype,
    VirtualMachineInstancetypeSpec,
)
from virt_core.apis.support.feature import NOT_YET, row
from virt_core.apis.support.table import Support
from virt_core.kube.configvalues import ClusterConfig

TRACKED = "spec.template.spec.domain.devices.disks[0].changedBlockTracking"
VALIDATE = "/virtualmachines-validate"
CLAIM = {"name": "c", "resourceClaimName": "x"}
#: Two features of which a door knows that they are not there, whatever is built by now.
AHEAD = Support(
    (
        row("", NOT_YET, "tracking", fields="domain.devices.disks[].changedBlockTracking"),
        row("", NOT_YET, "claims", fields="resourceClaims domain.devices.gpus[].claimName"),
    )
)
AHEAD_HOOKS = hooks(config=ClusterConfig(default_architecture="amd64"), support=AHEAD)


def tracked(**spec: Any) -> dict[str, Any]:
    found = vm(**spec)
    found["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]["changedBlockTracking"] = True
    return found


def test_every_field_is_named_at_once_with_what_else_is_wrong() -> None:
    bad = vmi(resourceClaims=[CLAIM], hostname="No_Name")
    bad["spec"]["domain"]["devices"]["disks"][0]["changedBlockTracking"] = True
    causes = create(bad, using=AHEAD_HOOKS).causes
    assert set(causes) == {
        ("spec.resourceClaims", "FieldValueNotSupported"),
        ("spec.domain.devices.disks[0].changedBlockTracking", "FieldValueNotSupported"),
        ("spec.hostname", "FieldValueInvalid"),
    }


def test_what_is_switched_off_is_not_asked_for() -> None:
    quiet = vmi()
    quiet["spec"]["domain"]["devices"]["disks"][0]["blockSize"] = {"matchVolume": {"enabled": False}}
    quiet["spec"]["domain"]["devices"] |= {"tpm": {"persistent": False}, "gpus": [], "filesystems": None}
    assert create(quiet, using=TODAY_HOOKS).code == 201


def test_a_vm_that_was_stored_before_can_be_stopped_but_gets_nothing_new() -> None:
    stored = tracked(runStrategy="Always")
    stopped = copy.deepcopy(stored) | {"spec": {**stored["spec"], "runStrategy": "Halted"}}
    assert update(stopped, stored, VALIDATE, using=AHEAD_HOOKS).code == 200
    more = copy.deepcopy(stopped)
    more["spec"]["template"]["spec"]["resourceClaims"] = [CLAIM]
    assert update(more, stored, VALIDATE, using=AHEAD_HOOKS).causes == [
        ("spec.template.spec.resourceClaims", "FieldValueNotSupported")
    ]
    assert update(stored, vm(), VALIDATE, using=AHEAD_HOOKS).fields == [TRACKED]


def test_one_that_is_being_deleted_passes() -> None:
    leaving = tracked()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert update(leaving, vm(), VALIDATE, using=AHEAD_HOOKS).code == 200


def test_what_an_instance_type_asks_for_is_refused_at_the_vm() -> None:
    size = VirtualMachineInstancetypeSpec(
        cpu=CPUInstancetype(guest=2),
        memory=MemoryInstancetype(guest="1Gi"),
        gpus=[GPU(name="card", claim_name="c", request_name="r")],
    )
    cluster = FakeCluster(VirtualMachineClusterInstancetype(metadata=meta("quick", ""), spec=size))
    typed = vm(instancetype={"name": "quick", "kind": "VirtualMachineClusterInstancetype"})
    del typed["spec"]["template"]["spec"]["domain"]["memory"]
    typed["spec"]["template"]["spec"]["resourceClaims"] = [CLAIM]
    verdict = create(typed, using=hooks(cluster, support=AHEAD))
    claims = "spec.template.spec.resourceClaims"
    assert set(verdict.causes) == {(path, "FieldValueNotSupported") for path in ("spec.instancetype", claims)}
    assert "spec.domain.devices.gpus[0].claimName" in verdict.message
    assert update(typed, typed, VALIDATE, using=hooks(cluster, support=AHEAD)).code == 200
    assert create(typed, using=hooks(cluster)).code == 201
