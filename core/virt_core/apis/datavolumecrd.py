"""Our definition of DataVolumes, for clusters without CDI.

What is wrong with a DataVolume is said by the definition itself, so that nothing of ours is asked where CDI's stands.
"""

from __future__ import annotations

from typing import Any

from virt_core.apis import names
from virt_core.apis.datavolume import DEFINITION, LABEL_IMPORTER, DataVolumeSpec, DataVolumeStatus
from virt_core.apis.schema import struct_schema
from virt_core.apis.upload import CDIConfigSpec, CDIConfigStatus

Schema = dict[str, Any]

#: Sources and fields that CDI has and we do not: refused by name.
_OTHER_SOURCES = ("s3", "gcs", "imageio", "vddk", "snapshot")


def _rule(rule: str, message: str) -> Schema:
    return {"rule": rule, "message": message}


def _unknown(name: str, why: str) -> Schema:
    return _rule(f"!has(self.{name})", f"{name} is not supported by Virtpod's importer{why}")


def _spec() -> Schema:
    schema = struct_schema(DataVolumeSpec)
    properties = schema["properties"]
    properties |= {name: _anything() for name in ("sourceRef", "checkpoints", "finalCheckpoint")}
    properties["checkpoints"] = {"type": "array", "maxItems": 1000, "items": _anything()}
    properties["finalCheckpoint"] = {"type": "boolean"}
    properties["contentType"]["enum"] = ["kubevirt", ""]
    schema["x-kubernetes-validations"] = [
        _rule("has(self.pvc) != has(self.storage)", "exactly one of pvc and storage is needed"),
        _rule("has(self.source) || has(self.sourceRef)", "source is needed"),
        _unknown("sourceRef", ": name the claim in source.pvc"),
        _unknown("checkpoints", ""),
        _unknown("finalCheckpoint", ""),
        _rule("self == oldSelf", "the spec of a DataVolume cannot be changed"),
    ]
    _source(properties["source"])
    for name in ("pvc", "storage"):
        _claim(properties[name], sized=name == "pvc")
    return schema


def _source(schema: Schema) -> None:
    properties = schema["properties"]
    kinds = [*properties, *_OTHER_SOURCES]
    properties |= {name: _anything() for name in _OTHER_SOURCES}
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in kinds)
    schema["x-kubernetes-validations"] = [
        _rule(f"{count} == 1", "exactly one kind of source is needed"),
        *(_unknown(name, "") for name in _OTHER_SOURCES),
    ]
    http = properties["http"]["properties"]
    http["url"] |= {"pattern": "^https?://[^\\s]+$", "maxLength": 2048}
    http["checksum"] |= {"pattern": "^((md5:[0-9a-fA-F]{32})|(sha1:[0-9a-fA-F]{40})|(sha256:[0-9a-fA-F]{64})"
                         "|(sha512:[0-9a-fA-F]{128}))?$"}  # fmt: skip
    http["extraHeaders"] |= {"maxItems": 64}
    http["secretExtraHeaders"] |= {"maxItems": 16}
    registry = properties["registry"]["properties"]
    registry["url"] |= {"pattern": "^docker://[^\\s]+$", "maxLength": 2048}
    registry["pullMethod"] |= {"enum": ["pod", "node"]}
    properties["registry"]["required"] = ["url"]


def _claim(schema: Schema, *, sized: bool) -> None:
    properties = schema["properties"]
    properties |= {name: _anything() for name in ("selector", "dataSource", "dataSourceRef")}
    properties["volumeMode"] |= {"enum": [names.VOLUME_MODE_FILESYSTEM, names.VOLUME_MODE_BLOCK]}
    properties["accessModes"] |= {"maxItems": 4}
    properties["accessModes"]["items"] |= {
        "enum": [names.ACCESS_ONE_NODE, names.ACCESS_ALL_NODES, "ReadWriteOncePod"],
    }
    rules = [_unknown(name, "") for name in ("selector", "dataSource", "dataSourceRef")]
    if sized:
        rules.append(_rule("has(self.accessModes) && size(self.accessModes) > 0", "accessModes are needed"))
    schema["x-kubernetes-validations"] = rules


def _anything() -> Schema:
    """It is refused whatever is in it."""
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def roles() -> list[Schema]:
    """What the usual roles of a namespace may do with DataVolumes, as CDI's own roles say it."""
    changes = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
    return [_role("edit", changes, ("admin", "edit")), _role("view", ["get", "list", "watch"], ("view",))]


def _role(name: str, verbs: list[str], part_of: tuple[str, ...]) -> Schema:
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{each}": "true" for each in part_of}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"virtpod:datavolumes:{name}", "labels": {names.LABEL_APP: "", **labels}},
        "rules": [{"apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes"], "verbs": verbs}],
    }


def config_definition() -> Schema:
    """The kind by which clients learn where to send disks to. Without a subresource: one hand writes all of it."""
    properties: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    properties |= {"spec": struct_schema(CDIConfigSpec), "status": struct_schema(CDIConfigStatus)}
    properties["spec"]["properties"]["uploadProxyURLOverride"] |= {"pattern": "^(https://)?[^\\s/]+(/[^\\s]*)?$"}
    description = "Where clients send disks to. Of its name only `config` is read."
    schema = {"type": "object", "description": description, "properties": properties}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    called = {"plural": "cdiconfigs", "singular": "cdiconfig", "kind": "CDIConfig", "listKind": "CDIConfigList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "cdiconfigs.cdi.kubevirt.io",
            "labels": {names.LABEL_APP: "", LABEL_IMPORTER: "true"},
        },
        "spec": {"group": "cdi.kubevirt.io", "scope": "Cluster", "names": called, "versions": [version]},
    }


def definition() -> Schema:
    """The CustomResourceDefinition, as a plain document."""
    status = struct_schema(DataVolumeStatus)
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _spec(),
        "status": status,
    }
    schema = {
        "type": "object",
        "description": "A claim that is filled from somewhere.",
        "required": ["spec"],
        "properties": properties,
    }
    columns = (
        ("Phase", "string", ".status.phase"),
        ("Progress", "string", ".status.progress"),
        ("Restarts", "integer", ".status.restartCount"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": n, "type": t, "jsonPath": p} for n, t, p in columns],
    }
    called = {
        "plural": "datavolumes",
        "singular": "datavolume",
        "kind": "DataVolume",
        "listKind": "DataVolumeList",
        "shortNames": ["dv", "dvs"],
        "categories": ["all"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION, "labels": {names.LABEL_APP: "", LABEL_IMPORTER: "true"}},
        "spec": {"group": "cdi.kubevirt.io", "scope": "Namespaced", "names": called, "versions": [version]},
    }
