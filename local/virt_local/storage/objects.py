"""What an administrator applies who brings this storage to a cluster: its classes, and the kinds of snapshots. Pure."""

from __future__ import annotations

from typing import Any

from virt_core.apis import names
from virt_core.apis.volumesnapshots import SNAPSHOT_GROUP
from virt_local.storage.vocabulary import DEFAULT_SNAPSHOT_CLASS, PROVISIONER

Object = dict[str, Any]
CLASS, LATE_CLASS = "hostpath", "hostpath-wait"

_TEXT: Object = {"type": "string"}
_NAME: Object = {"type": "string", "minLength": 1, "maxLength": 253}
_COUNT: Object = {"type": "integer", "format": "int64", "minimum": 0}
_FLAG: Object = {"type": "boolean"}
_TIME: Object = {"type": "string", "format": "date-time"}
_POLICY: Object = {"type": "string", "enum": ["Delete", "Retain"]}
_ERROR: Object = {"type": "object", "properties": {"message": _TEXT, "time": _TIME}}
_QUANTITY: Object = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[numkMGTPE]|[eE][0-9]+)?$",
    "x-kubernetes-int-or-string": True,
}
_REFERENCE: Object = {
    "type": "object",
    "properties": dict.fromkeys(
        ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"), _TEXT
    ),
    "x-kubernetes-map-type": "atomic",
}


def storage_class() -> Object:
    obj = _object("storage.k8s.io/v1", "StorageClass", CLASS)
    obj["metadata"]["annotations"] = {names.ANNOTATION_DEFAULT_CLASS: "true"}
    return obj | _class_fields("Immediate")


def late_storage_class() -> Object:
    """The same, for whoever wants a volume only when a Pod needs it."""
    return _object("storage.k8s.io/v1", "StorageClass", LATE_CLASS) | _class_fields(names.BINDING_FIRST_CONSUMER)


def _class_fields(mode: str) -> Object:
    return {
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": mode,
        "allowVolumeExpansion": True,
    }


def snapshot_class() -> Object:
    obj = _object(f"{SNAPSHOT_GROUP}/v1", "VolumeSnapshotClass", CLASS)
    obj["metadata"]["annotations"] = {DEFAULT_SNAPSHOT_CLASS: "true"}
    return obj | {"driver": PROVISIONER, "deletionPolicy": "Delete"}


def snapshot_definitions() -> list[Object]:
    """The kinds of `snapshot.storage.k8s.io/v1`, for API servers that have none."""
    return [_snapshots(), _contents(), _classes()]


def _snapshots() -> Object:
    either = {"rule": "has(self.persistentVolumeClaimName) != has(self.volumeSnapshotContentName)"}
    source: Object = {
        "type": "object",
        "properties": {"persistentVolumeClaimName": _fixed(_NAME), "volumeSnapshotContentName": _fixed(_NAME)},
        "x-kubernetes-validations": [either | {"message": "exactly one source must be named"}, _unchanged()],
    }
    spec = _structure({"source": source, "volumeSnapshotClassName": _NAME}, "source")
    status = _structure(
        {
            "boundVolumeSnapshotContentName": _TEXT,
            "creationTime": _TIME,
            "readyToUse": _FLAG,
            "restoreSize": _QUANTITY,
            "error": _ERROR,
        }
    )
    columns = [
        _column("ReadyToUse", "boolean", ".status.readyToUse"),
        _column("SourcePVC", "string", ".spec.source.persistentVolumeClaimName"),
        _column("SourceSnapshotContent", "string", ".spec.source.volumeSnapshotContentName"),
        _column("RestoreSize", "string", ".status.restoreSize"),
        _column("SnapshotClass", "string", ".spec.volumeSnapshotClassName"),
        _column("SnapshotContent", "string", ".status.boundVolumeSnapshotContentName"),
        _column("CreationTime", "date", ".status.creationTime"),
    ]
    return _definition("VolumeSnapshot", "vs", "Namespaced", {"spec": spec, "status": status}, columns)


def _contents() -> Object:
    either = {"rule": "has(self.volumeHandle) != has(self.snapshotHandle)"}
    source: Object = {
        "type": "object",
        "properties": {"volumeHandle": _fixed(_NAME), "snapshotHandle": _fixed(_NAME)},
        "x-kubernetes-validations": [either | {"message": "exactly one source must be named"}, _unchanged()],
    }
    spec = _structure(
        {
            "deletionPolicy": _POLICY,
            "driver": _NAME,
            "source": source,
            "sourceVolumeMode": _TEXT,
            "volumeSnapshotClassName": _TEXT,
            "volumeSnapshotRef": _REFERENCE,
        },
        *("deletionPolicy", "driver", "source", "volumeSnapshotRef"),
    )
    status = _structure(
        {
            "creationTime": {"type": "integer", "format": "int64"},
            "error": _ERROR,
            "readyToUse": _FLAG,
            "restoreSize": _COUNT,
            "snapshotHandle": _TEXT,
        }
    )
    columns = [
        _column("ReadyToUse", "boolean", ".status.readyToUse"),
        _column("RestoreSize", "integer", ".status.restoreSize"),
        _column("DeletionPolicy", "string", ".spec.deletionPolicy"),
        _column("Driver", "string", ".spec.driver"),
        _column("VolumeSnapshotClass", "string", ".spec.volumeSnapshotClassName"),
        _column("VolumeSnapshot", "string", ".spec.volumeSnapshotRef.name"),
        _column("VolumeSnapshotNamespace", "string", ".spec.volumeSnapshotRef.namespace"),
    ]
    parts = {"spec": spec, "status": status}
    return _definition("VolumeSnapshotContent", "vsc vscs", "Cluster", parts, columns)


def _classes() -> Object:
    parts: Object = {
        "deletionPolicy": _POLICY,
        "driver": _NAME,
        "parameters": {"type": "object", "additionalProperties": _TEXT},
    }
    columns = [
        _column("Driver", "string", ".driver"),
        _column("DeletionPolicy", "string", ".deletionPolicy"),
    ]
    return _definition("VolumeSnapshotClass", "vsclass vsclasses", "Cluster", parts, columns)


def _definition(kind: str, short: str, scope: str, parts: Object, columns: list[Object]) -> Object:
    plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
    obj = _object("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{plural}.{SNAPSHOT_GROUP}")
    # The group is protected on clusters: whoever defines a kind in it says by what right.
    obj["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, the snapshot controller's own kinds"}
    needed = ["spec"] if "spec" in parts else ["deletionPolicy", "driver"]
    known = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}}
    schema = {"type": "object", "properties": known | parts, "required": needed}
    version: Object = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [*columns, _column("Age", "date", ".metadata.creationTimestamp")],
    }
    if "status" in parts:
        version["subresources"] = {"status": {}}
    called = {
        "plural": plural,
        "singular": kind.lower(),
        "kind": kind,
        "listKind": f"{kind}List",
        "shortNames": short.split(),
    }
    return obj | {"spec": {"group": SNAPSHOT_GROUP, "scope": scope, "names": called, "versions": [version]}}


def _structure(properties: Object, *required: str) -> Object:
    made: Object = {"type": "object", "properties": properties}
    return made | ({"required": list(required)} if required else {})


def _fixed(schema: Object) -> Object:
    return schema | {"x-kubernetes-validations": [_unchanged()]}


def _unchanged() -> Object:
    return {"rule": "self == oldSelf", "message": "cannot be changed"}


def _column(name: str, type: str, path: str) -> Object:
    return {"name": name, "type": type, "jsonPath": path}


def _object(api_version: str, kind: str, name: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
