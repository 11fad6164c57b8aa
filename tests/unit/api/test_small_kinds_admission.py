"""Instance types, preferences, policies, the KubeVirt object, and all that copies a VM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from framework.supported import ALL_GATES
from unit.api.fakecluster import FakeCluster, meta
from unit.api.reviews import CONFIG, ON_CREATE, create, hooks, update

from virt_core.apis.kubevirt import KubeVirt
from virt_core.apis.meta import Condition
from virt_core.apis.podparts import TypedLocalObjectReference
from virt_core.apis.snapshot import (
    VirtualMachineRestore,
    VirtualMachineRestoreSpec,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
    VirtualMachineSnapshotSpec,
    VolumeBackup,
    content_name,
)
from virt_core.apis.vmi import VirtualMachineInstance

INVALID, REQUIRED, NOT_FOUND = "FieldValueInvalid", "FieldValueRequired", "FieldValueNotFound"
VM = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "v"}
ALL_ON = replace(
    CONFIG,
    feature_gates=ALL_GATES | {"IncrementalBackup", "MigrationDowntimeTuning", "MigrationStallDetection"},
)
USING = hooks(config=ALL_ON)
SIZE = {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}
POLICY: dict[str, Any] = {"selectors": {}}
RESTORE = {"target": VM, "virtualMachineSnapshotName": "s"}
BACKUP = {"source": VM, "pvcName": "p"}


def thing(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "t", "namespace": "default"}, "spec": spec}


#: kind, spec, cause
BAD: list[tuple[str, dict[str, Any], tuple[str, str]]] = [
    ("VirtualMachineInstancetype", {"memory": {"guest": "1Gi"}}, ("spec.cpu", REQUIRED)),
    ("VirtualMachineInstancetype", {**SIZE, "cpu": {"guest": 0}}, ("spec.cpu.guest", INVALID)),
    ("VirtualMachineClusterInstancetype", {**SIZE, "memory": {"guest": "-1"}}, ("spec.memory.guest", INVALID)),
    (
        "VirtualMachineInstancetype",
        {**SIZE, "memory": {"guest": "1Gi", "overcommitPercent": 101}},
        ("spec.memory.overcommitPercent", INVALID),
    ),
    (
        "VirtualMachineInstancetype",
        {**SIZE, "memory": {"guest": "1Gi", "overcommitPercent": 10, "hugepages": {"pageSize": "2Mi"}}},
        ("spec.memory.overcommitPercent", INVALID),
    ),
    ("VirtualMachinePreference", {"cpu": {"preferredCPUTopology": "x"}}, ("spec.cpu.preferredCPUTopology", INVALID)),
    (
        "VirtualMachineClusterPreference",
        {"cpu": {"spreadOptions": {"across": "x"}}},
        ("spec.cpu.spreadOptions.across", INVALID),
    ),
    (
        "VirtualMachinePreference",
        {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads", "ratio": 3}}},
        ("spec.cpu.spreadOptions.ratio", INVALID),
    ),
    ("VirtualMachinePreference", {"devices": {"surprise": 1}}, ("spec.devices.surprise", INVALID)),
    ("MigrationPolicy", {}, ("spec.selectors", REQUIRED)),
    ("MigrationPolicy", {**POLICY, "completionTimeoutPerGiB": -1}, ("spec.completionTimeoutPerGiB", INVALID)),
    ("MigrationPolicy", {**POLICY, "bandwidthPerMigration": "-1"}, ("spec.bandwidthPerMigration", INVALID)),
    ("MigrationPolicy", {**POLICY, "maxDowntimeMs": 0}, ("spec.maxDowntimeMs", INVALID)),
    ("MigrationPolicy", {**POLICY, "experimental": {"compression": "x"}}, ("spec.experimental.compression", INVALID)),
    ("KubeVirt", {"configuration": {"imagePullPolicy": "x"}}, ("spec.configuration.imagePullPolicy", INVALID)),
    ("KubeVirt", {"configuration": {"surprise": 1}}, ("spec.configuration.surprise", INVALID)),
    (
        "VirtualMachineSnapshot",
        {"source": {"kind": "VirtualMachine", "name": "v"}},
        ("spec.source.apiGroup", NOT_FOUND),
    ),
    ("VirtualMachineSnapshot", {"source": {**VM, "apiGroup": "apps"}}, ("spec.source.apiGroup", INVALID)),
    ("VirtualMachineSnapshot", {"source": {**VM, "kind": "Pod"}}, ("spec.source.kind", INVALID)),
    ("VirtualMachineSnapshot", {"source": VM, "deletionPolicy": "x"}, ("spec.deletionPolicy", INVALID)),
    ("VirtualMachineRestore", {"target": VM}, ("spec.virtualMachineSnapshotName", REQUIRED)),
    ("VirtualMachineRestore", {**RESTORE, "targetReadinessPolicy": "x"}, ("spec.targetReadinessPolicy", INVALID)),
    ("VirtualMachineRestore", {**RESTORE, "volumeRestorePolicy": "x"}, ("spec.volumeRestorePolicy", INVALID)),
    ("VirtualMachineRestore", {**RESTORE, "volumeOwnershipPolicy": "x"}, ("spec.volumeOwnershipPolicy", INVALID)),
    ("VirtualMachineRestore", {**RESTORE, "patches": ["{"]}, ("spec.patches[0]", INVALID)),
    (
        "VirtualMachineRestore",
        {**RESTORE, "patches": ['{"op":"remove","path":"/metadata/x"}']},
        ("spec.patches", INVALID),
    ),
    (
        "VirtualMachineRestore",
        {**RESTORE, "volumeRestoreOverrides": [{}]},
        ("spec.volumeRestoreOverrides[0].volumeName", REQUIRED),
    ),
    (
        "VirtualMachineRestore",
        {**RESTORE, "patches": 257 * ['{"op":"remove","path":"/spec/x"}']},
        ("spec.patches", INVALID),
    ),
    ("VirtualMachineSnapshot", {"source": VM, "failureDeadline": "soon"}, ("spec.failureDeadline", INVALID)),
    (
        "VirtualMachineSnapshotContent",
        {"source": {"virtualMachine": {"spec": {"template": 5}}}},
        ("spec.source.virtualMachine", INVALID),
    ),
    (
        "VirtualMachineSnapshotContent",
        {"source": {}, "volumeBackups": [{"volumeName": "v", "persistentVolumeClaim": {"spec": {}}}]},
        ("spec.volumeBackups[0].persistentVolumeClaim.metadata.name", REQUIRED),
    ),
    (
        "VirtualMachineSnapshotContent",
        {"source": {}, "volumeBackups": [{"volumeName": "v", "persistentVolumeClaim": {"spec": 5}}]},
        ("spec.volumeBackups[0].persistentVolumeClaim", INVALID),
    ),
    (
        "VirtualMachineRestore",
        {**RESTORE, "volumeRestoreOverrides": [{"volumeName": "v"}]},
        ("spec.volumeRestoreOverrides[0]", INVALID),
    ),
    ("VirtualMachineExport", {"source": {**VM, "kind": "Pod"}}, ("spec.source.kind", INVALID)),
    ("VirtualMachineExport", {"source": {**VM, "name": ""}}, ("spec.source.name", INVALID)),
    ("VirtualMachineExport", {"source": VM, "ttlDuration": "2 hours"}, ("spec.ttlDuration", INVALID)),
    ("VirtualMachineExport", {"source": VM, "ttlDuration": "0s"}, ("spec.ttlDuration", INVALID)),
    ("VirtualMachineExport", {"source": VM, "ttlDuration": "999999h"}, ("spec.ttlDuration", INVALID)),
    ("VirtualMachineExport", {"source": VM, "tokenSecretRef": "../x"}, ("spec.tokenSecretRef", INVALID)),
    (
        "VirtualMachineExport",
        {"source": {"kind": "VirtualMachineBackup", "apiGroup": "backup.kubevirt.io", "name": "b"}},
        ("spec.source.kind", INVALID),
    ),
    ("VirtualMachineExport", {"source": {**VM, "kind": "PersistentVolumeClaim"}}, ("spec.source.APIGroup", INVALID)),
    ("VirtualMachineClone", {"source": {**VM, "kind": "Pod"}}, ("spec.Source.Kind", INVALID)),
    ("VirtualMachineClone", {"source": {"kind": "VirtualMachine", "name": "v"}}, ("spec.Source.APIGroup", INVALID)),
    ("VirtualMachineClone", {"source": VM, "target": VM}, ("spec.target.name", INVALID)),
    ("VirtualMachineClone", {"source": VM, "target": {**VM, "kind": "Pod"}}, ("spec.Target.Kind", INVALID)),
    ("VirtualMachineClone", {"source": VM, "newMacAddresses": {"a": "x"}}, ("spec.newMacAddresses.a", INVALID)),
    ("VirtualMachineClone", {"source": VM, "labelFilters": ["a*b"]}, ("spec.labels", INVALID)),
    ("VirtualMachineClone", {"source": VM, "annotationFilters": ["!"]}, ("spec.annotations", INVALID)),
    ("VirtualMachineClone", {"source": VM, "template": {"labelFilters": ["a!b"]}}, ("spec.template.labels", INVALID)),
    ("VirtualMachineClone", {"source": VM, "patches": ["no"]}, ("spec.patches[0]", INVALID)),
    ("VirtualMachineClone", {"source": VM, "patches": ['{"op":"add","path":"/spec/x"}']}, ("spec.patches[0]", INVALID)),
    ("VirtualMachineClone", {"source": VM, "patches": ['{"op":"remove"}']}, ("spec.patches[0]", INVALID)),
    (
        "VirtualMachineClone",
        {"source": VM, "patches": ['{"op":"copy","from":"/spec/a","path":"/spec/b","value":1}']},
        ("spec.patches[0]", INVALID),
    ),
    (
        "VirtualMachineClone",
        {"source": VM, "patches": ['{"op":"add","path":"/metadata/ownerReferences","value":[]}']},
        ("spec.patches", INVALID),
    ),
    ("VirtualMachineClone", {"source": VM, "patches": ["{}"] * 257}, ("spec.patches", INVALID)),
    ("VirtualMachineClone", {"source": VM, "labelFilters": ["a"] * 65}, ("spec.labels", INVALID)),
    ("VirtualMachineClone", {"source": VM, "labelFilters": ["(a+)+$"]}, ("spec.labels", INVALID)),
    ("VirtualMachineClone", {"source": VM, "labelFilters": ["a" * 513]}, ("spec.labels", INVALID)),
    ("VirtualMachineClone", {"source": {**VM, "apiGroup": "apps"}}, ("spec.Source.APIGroup", INVALID)),
    ("VirtualMachineClone", {"source": {**VM, "name": ""}}, ("spec.Source.Name", INVALID)),
    (
        "VirtualMachineClone",
        {"source": VM, "target": {**VM, "apiGroup": "apps", "name": "w"}},
        ("spec.Target.APIGroup", INVALID),
    ),
    ("VirtualMachineClone", {"source": VM, "newSMBiosSerial": "s" * 257}, ("spec.newSMBiosSerial", INVALID)),
    ("VirtualMachineClone", {"source": VM, "volumeNamePolicy": "x"}, ("spec.volumeNamePolicy", INVALID)),
    ("VirtualMachineBackup", {"source": VM}, ("spec.pvcName", REQUIRED)),
    ("VirtualMachineBackup", {**BACKUP, "mode": "x"}, ("spec.mode", INVALID)),
    ("VirtualMachineBackup", {**BACKUP, "mode": "Pull", "tokenSecretRef": "t"}, ("spec.mode", INVALID)),
    ("VirtualMachineBackup", {**BACKUP, "ttlDuration": "soon"}, ("spec.ttlDuration", INVALID)),
    ("VirtualMachineBackup", {**BACKUP, "source": {**VM, "kind": "Pod"}}, ("spec.source.kind", INVALID)),
    ("VirtualMachineBackupTracker", {"source": {**VM, "kind": "Pod"}}, ("spec.source.kind", INVALID)),
]


@pytest.mark.parametrize(("kind", "spec", "cause"), BAD)
def test_what_is_refused(kind: str, spec: dict[str, Any], cause: tuple[str, str]) -> None:
    verdict = create(thing(kind, spec), using=USING)
    assert (verdict.code, verdict.causes) == (422, [cause]), verdict.message


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("VirtualMachineInstancetype", {**SIZE, "memory": {"guest": "1Gi", "overcommitPercent": 100}}),
    ("VirtualMachineClusterInstancetype", SIZE),
    (
        "VirtualMachinePreference",
        {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads"}}},
    ),
    ("VirtualMachineClusterPreference", {}),
    ("MigrationPolicy", {**POLICY, "maxDowntimeMs": 100, "experimental": {"stallDetector": {}, "downtimeTuning": {}}}),
    ("KubeVirt", {"configuration": {"developerConfiguration": {"featureGates": ["HostDisk"]}}}),
    ("VirtualMachineSnapshot", {"source": VM, "deletionPolicy": "Retain"}),
    (
        "VirtualMachineRestore",
        {
            **RESTORE,
            "patches": [
                '{"op":"remove","path":"/spec/x"}',
                '{"op":"add","path":"/metadata/labels/a","value":{"mac":"02:00:00:00:00:01,"}}',
                '{"op":"remove","path":"/metadata/annotations/a"}',
            ],
            "volumeRestorePolicy": "InPlace",
        },
    ),
    ("VirtualMachineExport", {"source": VM}),
    ("VirtualMachineExport", {"source": VM, "ttlDuration": "1h30m", "tokenSecretRef": "secret-mine"}),
    ("VirtualMachineExport", {"source": {"kind": "PersistentVolumeClaim", "name": "p"}}),
    (
        "VirtualMachineClone",
        {"source": VM, "labelFilters": ["a*", "!b"], "newMacAddresses": {"a": "02:00:00:00:00:01"}},
    ),
    (
        "VirtualMachineClone",
        {
            "source": {"apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot", "name": "v"},
            "target": {"kind": "VirtualMachine", "name": "v"},
            "template": {"labelFilters": ["*", "!^app/.*"], "annotationFilters": []},
            "patches": ['{"op":"add","path":"/metadata/labels/a","value":"02:00:00:00:00:01, b"}'],
            "volumeNamePolicy": "PrefixTargetName",
            "newSMBiosSerial": "x",
        },
    ),
    ("VirtualMachineBackup", {**BACKUP, "mode": "Push", "ttlDuration": "30m"}),
    ("VirtualMachineBackupTracker", {"source": VM}),
]


@pytest.mark.parametrize(("kind", "spec"), GOOD)
def test_what_is_accepted(kind: str, spec: dict[str, Any]) -> None:
    verdict = create(thing(kind, spec), using=USING)
    assert verdict.code == 201, verdict.message


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("VirtualMachineBackup", BACKUP),
        ("VirtualMachineBackupTracker", {"source": VM}),
        ("VirtualMachineSnapshot", {"source": VM}),
        ("VirtualMachineRestore", RESTORE),
        ("VirtualMachineClone", {"source": VM}),
        ("MigrationPolicy", {**POLICY, "maxDowntimeMs": 100}),
    ],
)
def test_gates_close_kinds(kind: str, spec: dict[str, Any]) -> None:
    closed = hooks(config=replace(CONFIG, feature_gates=frozenset()))
    assert create(thing(kind, spec), using=closed).code == 422


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("VirtualMachineSnapshot", {"source": VM}, {"source": {**VM, "name": "w"}}),
        ("VirtualMachineRestore", RESTORE, {**RESTORE, "virtualMachineSnapshotName": "t"}),
        ("VirtualMachineExport", {"source": VM}, {"source": {**VM, "name": "w"}}),
        ("VirtualMachineClone", {"source": VM}, {"source": VM, "newSMBiosSerial": "x"}),
        ("VirtualMachineBackup", BACKUP, {**BACKUP, "pvcName": "q"}),
        ("VirtualMachineBackupTracker", {"source": VM}, {"source": {**VM, "name": "w"}}),
    ],
)
def test_what_was_asked_for_stays(kind: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    path = ON_CREATE[kind][-1]
    assert update(thing(kind, after), thing(kind, before), path, using=USING).causes == [("spec", INVALID)]
    assert update(thing(kind, before), thing(kind, before), path, using=USING).code == 200


def test_a_clone_without_a_target_gets_a_name() -> None:
    target = create(thing("VirtualMachineClone", {"source": VM})).admitted["spec"]["target"]
    assert (target["apiGroup"], target["kind"]) == ("kubevirt.io", "VirtualMachine")
    assert target["name"].startswith("clone-v-")
    assert len(target["name"]) == len("clone-v-") + 5


def test_one_restore_of_a_vm_at_a_time() -> None:
    target = TypedLocalObjectReference(api_group="kubevirt.io", kind="VirtualMachine", name="v")
    running = VirtualMachineRestore(metadata=meta("first"), spec=VirtualMachineRestoreSpec(target=target))
    assert create(thing("VirtualMachineRestore", RESTORE), using=hooks(FakeCluster(running))).causes == [
        ("spec.target", INVALID)
    ]
    running.status.complete = True
    assert create(thing("VirtualMachineRestore", RESTORE), using=hooks(FakeCluster(running))).code == 201
    running.status.complete = False
    running.status.conditions = [Condition(type="Failure", status="True")]
    assert create(thing("VirtualMachineRestore", RESTORE), using=hooks(FakeCluster(running))).code == 201, "it is over"


def test_what_firmware_has_stored_goes_to_no_other_machine() -> None:
    source = TypedLocalObjectReference(api_group="kubevirt.io", kind="VirtualMachine", name="v")
    saved = VirtualMachineSnapshot(metadata=meta("s"), spec=VirtualMachineSnapshotSpec(source=source))
    state = VolumeBackup(volume_name="persistent-state-for-v", persistent_volume_claim={})
    held = VirtualMachineSnapshotContent(metadata=meta(content_name(saved)))
    held.spec.volume_backups = [state]
    using = hooks(FakeCluster(saved, held))
    other = {**RESTORE, "target": {**VM, "name": "w"}}
    assert create(thing("VirtualMachineRestore", other), using=using).causes == [("spec", INVALID)]
    assert create(thing("VirtualMachineRestore", RESTORE), using=using).code == 201
    held.spec.volume_backups = []
    assert create(thing("VirtualMachineRestore", other), using=using).code == 201


def test_a_cluster_has_one_kubevirt_object() -> None:
    using = hooks(FakeCluster(KubeVirt(metadata=meta("kubevirt", "virtpod"))))
    assert create(thing("KubeVirt", {}), using=using).code == 400


def test_words_to_an_operator_are_answered() -> None:
    """There is none: they are kept, as the tools that write them expect, and whoever writes them hears of it."""
    spec = {
        "imageTag": "v1",
        "infra": {"replicas": 2},
        "certificateRotateStrategy": {"selfSigned": {"ca": {"duration": "24h"}}},
        "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"], "batchEvictionSize": 10},
        "uninstallStrategy": "RemoveWorkloads",
        "configuration": {"imagePullPolicy": "Always"},
    }
    verdict = create(thing("KubeVirt", spec))
    assert verdict.code == 201
    assert [line.split()[0] for line in verdict.warnings] == [
        "spec.imageTag",
        "spec.infra",
        "spec.certificateRotateStrategy",
    ]
    assert all(" has no effect: " in line for line in verdict.warnings)
    assert update(thing("KubeVirt", spec), thing("KubeVirt", {}), "/kubevirt-validate-update").warnings


def test_who_may_do_what_is_said_in_the_chart() -> None:
    [said] = create(thing("KubeVirt", {"configuration": {"roleAggregationStrategy": "Manual"}})).warnings
    assert said.startswith("spec.configuration.roleAggregationStrategy has no effect in this object: ")
    refused = create(thing("KubeVirt", {"configuration": {"roleAggregationStrategy": "Sometimes"}}))
    assert refused.causes == [("spec.configuration.roleAggregationStrategy", "FieldValueInvalid")]


def test_moves_are_encrypted_whatever_one_asks_for() -> None:
    spec = {"configuration": {"migrations": {"disableTLS": True, "network": "moves"}}}
    [said] = create(thing("KubeVirt", spec)).warnings
    assert said == "spec.configuration.migrations.disableTLS has no effect: machines always move encrypted"


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        ({"workloadUpdateMethods": ["LiveMigrate", "Pray"]}, "workloadUpdateMethods[1]"),
        ({"batchEvictionSize": 0}, "batchEvictionSize"),
        ({"batchEvictionInterval": "soon"}, "batchEvictionInterval"),
    ],
)
def test_how_machines_get_a_new_launcher_must_make_sense(strategy: dict[str, Any], field: str) -> None:
    verdict = create(thing("KubeVirt", {"workloadUpdateStrategy": strategy}))
    assert verdict.code == 422
    assert f"spec.workloadUpdateStrategy.{field}" in verdict.message


def test_empty_words_to_an_operator_need_no_answer() -> None:
    """As in the object that people copy."""
    spec = {
        "certificateRotateStrategy": {},
        "customizeComponents": {"patches": []},
        "workloadUpdateStrategy": {"workloadUpdateMethods": []},
        "configuration": {},
    }
    assert create(thing("KubeVirt", spec)).warnings == []


@pytest.mark.parametrize(("strategy", "code"), [("BlockUninstallIfWorkloadsExist", 400), ("RemoveWorkloads", 200)])
def test_machines_can_keep_the_installation(strategy: str, code: int) -> None:
    from unit.api.reviews import review

    using = hooks(FakeCluster(VirtualMachineInstance(metadata=meta("v"))))
    old = thing("KubeVirt", {"uninstallStrategy": strategy})

    def delete(request: Any) -> Any:
        request.operation = "DELETE"
        return using["/kubevirt-validate-delete"](request)

    response = review(delete, {}, old=old)
    assert (200 if response["allowed"] else response["status"]["code"]) == code


def test_a_setting_that_was_there_before_needs_no_gate() -> None:
    old = thing("MigrationPolicy", {**POLICY, "maxDowntimeMs": 100})
    path = "/migration-policy-validate-create"
    assert update(old, old, path).code == 200
    changed = thing("MigrationPolicy", {**POLICY, "maxDowntimeMs": 200})
    assert update(changed, old, path).causes == [("spec.maxDowntimeMs", INVALID)]
