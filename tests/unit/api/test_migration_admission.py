"""Migrations: what may move, and what stays as it is."""

from __future__ import annotations

from typing import Any

import pytest
from unit.api.fakecluster import FakeCluster, meta
from unit.api.reviews import CONTROLLER, create, hooks, update

from virt_core.apis.meta import Condition
from virt_core.apis.migration import VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationSpec
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus

INVALID, NOT_SUPPORTED, FORBIDDEN = "FieldValueInvalid", "FieldValueNotSupported", "FieldValueForbidden"


def thing(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": kind,
        "metadata": {"name": "t", "namespace": "default"},
        "spec": spec,
    }


def migration(**spec: Any) -> dict[str, Any]:
    return thing("VirtualMachineInstanceMigration", {"vmiName": "m", **spec})


def running(phase: str = "Running", migratable: str = "True", reason: str = "") -> VirtualMachineInstance:
    condition = Condition(type="LiveMigratable", status=migratable, reason=reason)
    status = VirtualMachineInstanceStatus(phase=phase, conditions=[condition])
    return VirtualMachineInstance(metadata=meta("m"), status=status)


def other(phase: str) -> VirtualMachineInstanceMigration:
    found = VirtualMachineInstanceMigration(
        metadata=meta("other", labels={"kubevirt.io/vmi-name": "m"}),
        spec=VirtualMachineInstanceMigrationSpec(vmi_name="m"),
    )
    found.status.phase = phase
    return found


def test_a_migration_gets_a_label_and_a_finalizer() -> None:
    verdict = create(migration(), using=hooks(FakeCluster(running(), other("Succeeded"))))
    assert verdict.code == 201, verdict.message
    assert verdict.admitted["metadata"]["labels"] == {"kubevirt.io/vmi-name": "m"}
    assert verdict.admitted["metadata"]["finalizers"] == ["kubevirt.io/migrationJobFinalize"]


@pytest.mark.parametrize(
    "objects",
    [
        [],
        [running("Succeeded")],
        [running("Failed")],
        [running(migratable="False", reason="HostDeviceNotLiveMigratable")],
        [running(), other("Running")],
        [running(), other("")],
    ],
)
def test_what_cannot_move_now(objects: list[Any]) -> None:
    verdict = create(migration(), using=hooks(FakeCluster(*objects)))
    assert (verdict.code, verdict.causes) == (400, [])


def test_disks_may_stay_behind_when_the_machine_goes_to_another_cluster() -> None:
    using = hooks(FakeCluster(running(migratable="False", reason="DisksNotLiveMigratable")))
    assert create(migration(), using=using).code == 400
    assert create(migration(sendTo={"migrationID": "x", "connectURL": "u"}), using=using).code == 201


def test_priorities_belong_to_the_controller() -> None:
    using = hooks(FakeCluster(running()))
    verdict = create(migration(priority="system-critical"), using=using)
    assert verdict.causes == [("spec.migrationPriority", FORBIDDEN)]
    assert create(migration(priority="system-critical"), CONTROLLER, using).code == 201


def test_both_ends_of_a_migration_must_agree() -> None:
    ends = {"sendTo": {"migrationID": "x", "connectURL": "u"}, "receive": {"migrationID": "y"}}
    assert create(migration(**ends)).causes == [("spec.sendTo.migrationID", INVALID)]


def test_a_migration_is_not_changed() -> None:
    path = "/migration-validate-update"
    old = migration()
    old["metadata"]["labels"] = {"kubevirt.io/vmi-name": "m"}
    assert update(migration(vmiName="n"), old, path).causes == [
        ("spec", NOT_SUPPORTED),
        ("metadata.labels", NOT_SUPPORTED),
    ]
    assert update(migration(), {**old, "status": {"phase": "Failed"}}, path).code == 200
    assert update(old, old, path).code == 200


@pytest.mark.parametrize(("key", "value"), [("", "x"), ("a b", "x"), ("zone", "a/b"), ("x/y/z", "v"), ("k" * 64, "v")])
def test_a_selector_that_no_pod_could_have_is_refused_at_once(key: str, value: str) -> None:
    """Else the target's Pod would be refused, again and again."""
    verdict = create(migration(addedNodeSelector={key: value}), using=hooks(FakeCluster(running())))
    assert verdict.causes == [(f"spec.addedNodeSelector[{key}]", INVALID)]


def test_a_good_selector_is_kept() -> None:
    chosen = {"topology.kubernetes.io/zone": "a", "disk": ""}
    verdict = create(migration(addedNodeSelector=chosen), using=hooks(FakeCluster(running())))
    assert (verdict.code, verdict.admitted["spec"]["addedNodeSelector"]) == (201, chosen)
