"""Every kind keeps all that its schema knows, refuses nothing of it, and is defined as the reference says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import inspect as types

from virt_core.apis.apps import ControllerRevision
from virt_core.apis.base import decode
from virt_core.apis.crdkinds import KINDS
from virt_core.apis.crds import plain_definitions
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.registry import encode_object, resource_by_kind
from virt_core.apis.schema import object_schema

#: kind → (group, versions with the storage version marked, short names, scope, status, scale, in `all`)
REFERENCE: dict[str, tuple[str, str, str, str, bool, bool, bool]] = {
    "VirtualMachine": ("kubevirt.io", "v1* v1alpha3", "vm vms", "Namespaced", True, False, True),
    "VirtualMachineInstance": ("kubevirt.io", "v1* v1alpha3", "vmi vmis", "Namespaced", False, False, True),
    "VirtualMachineInstanceMigration": ("kubevirt.io", "v1* v1alpha3", "vmim vmims", "Namespaced", True, False, True),
    "VirtualMachineInstanceReplicaSet": ("kubevirt.io", "v1* v1alpha3", "vmirs vmirss", "Namespaced", True, True, True),
    "VirtualMachineInstancePreset": (
        "kubevirt.io", "v1 v1alpha3*", "vmipreset vmipresets", "Namespaced", False, False, True,
    ),
    "KubeVirt": ("kubevirt.io", "v1* v1alpha3", "kv kvs", "Namespaced", True, False, True),
    "VirtualMachinePool": ("pool.kubevirt.io", "v1alpha1 v1beta1*", "vmpool vmpools", "Namespaced", True, True, True),
    "VirtualMachineSnapshot": (
        "snapshot.kubevirt.io", "v1alpha1 v1beta1*", "vmsnapshot vmsnapshots", "Namespaced", True, False, True,
    ),
    "VirtualMachineSnapshotContent": (
        "snapshot.kubevirt.io", "v1alpha1 v1beta1*", "vmsnapshotcontent vmsnapshotcontents", "Namespaced", True, False,
        True,
    ),
    "VirtualMachineRestore": (
        "snapshot.kubevirt.io", "v1alpha1 v1beta1*", "vmrestore vmrestores", "Namespaced", True, False, True,
    ),
    "VirtualMachineExport": (
        "export.kubevirt.io", "v1beta1 v1*", "vmexport vmexports", "Namespaced", True, False, True,
    ),
    "VirtualMachineClone": (
        "clone.kubevirt.io", "v1alpha1 v1beta1*", "vmclone vmclones", "Namespaced", True, False, True,
    ),
    "VirtualMachineBackup": ("backup.kubevirt.io", "v1alpha1*", "vmbackup vmbackups", "Namespaced", True, False, True),
    "VirtualMachineBackupTracker": (
        "backup.kubevirt.io", "v1alpha1*", "vmbackuptracker vmbackuptrackers", "Namespaced", True, False, True,
    ),
    "VirtualMachineInstancetype": (
        "instancetype.kubevirt.io", "v1beta1*", "vminstancetype vminstancetypes vmf vmfs", "Namespaced", False, False,
        True,
    ),
    "VirtualMachineClusterInstancetype": (
        "instancetype.kubevirt.io", "v1beta1*", "vmclusterinstancetype vmclusterinstancetypes vmcf vmcfs", "Cluster",
        False, False, False,
    ),
    "VirtualMachinePreference": (
        "instancetype.kubevirt.io", "v1beta1*", "vmpref vmprefs vmp vmps", "Namespaced", False, False, True,
    ),
    "VirtualMachineClusterPreference": (
        "instancetype.kubevirt.io", "v1beta1*", "vmcp vmcps", "Cluster", False, False, False,
    ),
    "MigrationPolicy": ("migrations.kubevirt.io", "v1alpha1*", "", "Cluster", True, False, False),
}  # fmt: skip
DEFINITIONS = {crd["spec"]["names"]["kind"]: crd for crd in plain_definitions().values()}
ALL = sorted(kind.kind for kind in KINDS)


def full(info: Any) -> Any:
    """A value of a type with every field given, and none at its default."""
    if isinstance(info, types.Metadata):
        return full(info.type)
    if isinstance(info, types.UnionType):
        return full(next(member for member in info.types if not isinstance(member, types.NoneType)))
    if isinstance(info, types.StructType):
        return {field.encode_name: full(field.type) for field in info.fields}
    if isinstance(info, types.ListType):
        return [full(info.item_type)]
    if isinstance(info, types.DictType):
        return {"key": full(info.value_type)}
    samples: dict[type, Any] = {types.BoolType: True, types.IntType: 7, types.FloatType: 1.5, types.AnyType: {"a": 1}}
    return samples.get(type(info), "text")


@pytest.mark.parametrize("kind", ALL)
def test_nothing_that_the_schema_knows_is_lost(kind: str) -> None:
    resource = resource_by_kind(kind)
    document = full(types.type_info(resource.load()))
    document |= {"apiVersion": resource.api_version, "kind": kind}
    # What is at its default is left out, so a switch that is on by default would be missed; there is none.
    obj = decode(msgspec.json.encode(document), resource.load())
    assert msgspec.json.decode(encode_object(obj)) == document


@pytest.mark.parametrize("kind", ALL)
def test_a_kind_is_defined_as_the_reference_says(kind: str) -> None:
    group, versions, short, scope, status, scale, in_all = REFERENCE[kind]
    crd = DEFINITIONS[kind]
    spec = crd["spec"]
    assert crd["metadata"]["name"] == f"{spec['names']['plural']}.{group}"
    assert [v["name"] + ("*" if v["storage"] else "") for v in spec["versions"]] == versions.split()
    assert (spec["group"], spec["scope"]) == (group, scope)
    assert spec["names"].get("shortNames", []) == short.split()
    assert spec["names"].get("categories", []) == (["all"] if in_all else [])
    for version in spec["versions"]:
        assert ("status" in version.get("subresources", {})) is status
        assert ("scale" in version.get("subresources", {})) is scale


def test_all_kinds_of_the_reference_are_there() -> None:
    assert set(REFERENCE) == set(ALL)


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("VirtualMachineInstanceReplicaSet", ["Desired", "Current", "Ready", "Age"]),
        ("VirtualMachinePool", ["Desired", "Current", "Ready", "Age"]),
        ("KubeVirt", ["Age", "Phase"]),
        (
            "VirtualMachineSnapshot",
            ["SourceKind", "SourceName", "Phase", "ReadyToUse", "CreationTime", "Error"],
        ),
        ("VirtualMachineRestore", ["TargetKind", "TargetName", "Complete", "RestoreTime"]),
        ("VirtualMachineClone", ["Phase", "SourceVirtualMachine", "TargetVirtualMachine"]),
        ("VirtualMachineBackupTracker", ["SourceKind", "SourceName", "LatestCheckpoint", "CheckpointTime"]),
        ("MigrationPolicy", []),
    ],
)
def test_columns(kind: str, columns: list[str]) -> None:
    for version in DEFINITIONS[kind]["spec"]["versions"]:
        assert [column["name"] for column in version.get("additionalPrinterColumns", [])] == columns


def test_only_the_installation_carries_the_operators_label() -> None:
    marked = {kind for kind, crd in DEFINITIONS.items() if "operator.kubevirt.io" in crd["metadata"]["labels"]}
    assert marked == {"KubeVirt"}


@pytest.mark.parametrize("kind", ALL)
def test_every_node_of_every_schema_is_structural(kind: str) -> None:
    def walk(node: dict[str, Any], path: str) -> None:
        loose = node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
        assert loose or "type" in node, path
        assert set(node.get("required", [])) <= set(node.get("properties", {})), path
        for name, child in node.get("properties", {}).items():
            walk(child, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                walk(node[key], f"{path}[]")

    walk(object_schema(resource_by_kind(kind).load()), kind)


def test_a_revisions_bytes_are_those_of_the_api_server() -> None:
    """kube-apiserver compares the stored bytes of `data` with what Go's encoder makes of them: sorted, with escapes."""
    data = {"spec": {"b": 1, "a": "x && y > /dev/null < z"}}
    body = encode_object(ControllerRevision(metadata=ObjectMeta(name="r"), data=data, revision=3))
    assert b'"data":{"spec":{"a":"x \\u0026\\u0026 y \\u003e /dev/null \\u003c z","b":1}}' in body
    assert json.loads(body)["data"] == data
