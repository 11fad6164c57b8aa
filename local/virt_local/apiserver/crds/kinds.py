"""The kinds that a CRD defines: one for each served version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from virt_local.apiserver import jsonpath
from virt_local.apiserver.builtins.columns import AGE, NAME
from virt_local.apiserver.kinds import CUSTOM, Column, Kind, Scale
from virt_local.apiserver.schema.builtin import builtin_node
from virt_local.apiserver.schema.node import OBJECT, STRING, Node, compile_schema

Object = dict[str, Any]

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
_CELL_TYPES = {"integer", "number", "string", "boolean", "date"}


def kinds_of(crd: Object) -> list[Kind]:
    """Served kinds, the stored version's form included. Not served while the definition's names are refused."""
    spec, names = crd["spec"], crd["spec"]["names"]
    stored = next(version["name"] for version in spec["versions"] if version.get("storage"))
    return [_kind(spec, names, version, stored) for version in spec["versions"] if version.get("served")]


def _kind(spec: Object, names: Object, version: Object, stored: str) -> Kind:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    subresources = version.get("subresources") or {}
    return Kind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        namespaced=spec.get("scope") == "Namespaced",
        node=root_node(schema),
        singular=names.get("singular") or names["kind"].lower(),
        list_kind=names.get("listKind") or names["kind"] + "List",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        verbs=CUSTOM,
        subresources=tuple(name for name in ("status", "scale") if name in subresources),
        columns=_columns(version.get("additionalPrinterColumns") or []),
        fields=tuple(item["jsonPath"].lstrip(".") for item in version.get("selectableFields") or ()),
        schema=schema,
        scale=_scale(subresources.get("scale")),
        has_generation=True,
        stored_version=stored,
    )


def root_node(schema: Object) -> Node:
    """The schema of a whole object: what the CRD declares plus the identity and metadata that every object has."""
    node = compile_schema(schema)
    node.type = OBJECT
    node.properties = {
        **(node.properties or {}),
        "apiVersion": Node(STRING),
        "kind": Node(STRING),
        "metadata": builtin_node("V1ObjectMeta"),
    }
    return node


def _scale(scale: Object | None) -> Scale | None:
    if scale is None:
        return None
    selector = scale.get("labelSelectorPath", "")
    return Scale(scale["specReplicasPath"], scale["statusReplicasPath"], selector)


def _columns(declared: list[Object]) -> tuple[Column, ...]:
    if not declared:
        return (NAME, replace(AGE, type="date"))
    return (NAME, *(_column(column) for column in declared))


def _column(declared: Object) -> Column:
    kind = declared.get("type", "string")
    return Column(
        name=declared["name"],
        value=_reader(declared["jsonPath"], kind),
        type=kind if kind in _CELL_TYPES else "string",
        format=declared.get("format", ""),
        description=declared.get("description", ""),
        wide=declared.get("priority", 0) > 0,
    )


def _reader(path: str, kind: str) -> Any:
    find = jsonpath.compile_path(path)

    def read(obj: Object) -> Any:
        values = find(obj)
        if not values:
            return None
        if kind == "string":
            return ",".join(_text(value) for value in values) if len(values) > 1 else _text(values[0])
        return values[0]

    return read


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return "" if value is None else str(value)
