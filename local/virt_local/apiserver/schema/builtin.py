"""The types of the built-in kinds, as nodes for the server and as OpenAPI for clients.

The table beside this file is made by hack/generate_builtin_types.py. It holds names and types only; the few
descriptions that `kubectl explain` shows are our own.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from virt_local.apiserver.schema.merge_keys import ATOMIC_FIELDS, ATOMIC_TYPES, LISTS
from virt_local.apiserver.schema.node import ARRAY, BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, Node

_SCALARS = {"str": STRING, "int": INTEGER, "float": NUMBER, "bool": BOOLEAN, "bytes": STRING, "time": STRING}
_FORMATS = {"bytes": "byte", "time": "date-time", "int": "int64", "float": "double"}
REF = "#/components/schemas/"


class Field(NamedTuple):
    name: str
    code: str
    required: bool


@cache
def _table() -> dict[str, tuple[Field, ...]]:
    text = (resources.files(__package__) / "builtin_types.txt").read_text()
    table: dict[str, tuple[Field, ...]] = {}
    for line in text.splitlines():
        name, *fields = line.split(" ")
        table[name] = tuple(_field(field) for field in fields)
    return table


def _field(text: str) -> Field:
    name, code = text.split(":")
    return Field(name.removesuffix("!"), code, name.endswith("!"))


_nodes: dict[str, Node] = {}


def builtin_node(type_name: str) -> Node:
    """The node of a named type. Types refer to each other and to themselves, so a node is known before it is filled."""
    node = _nodes.get(type_name)
    if node is None:
        node = _nodes[type_name] = Node(OBJECT, properties={}, atomic=type_name in ATOMIC_TYPES, nullable=True)
        assert node.properties is not None
        for field in _table()[type_name]:
            node.properties[field.name] = _node_of(field.code, f"{type_name}.{field.name}")
    return node


def _node_of(code: str, place: str) -> Node:
    """Null stands for "not set" everywhere in built-in types."""
    if code.startswith("[]"):
        merge = LISTS.get(place)
        node = Node(ARRAY, items=_node_of(code[2:], ""), nullable=True, typed=True)
        if merge is not None:
            node.merge_key, node.list_type, node.list_keys = merge
        return node
    if code.startswith("{}"):
        return Node(OBJECT, values=_node_of(code[2:], ""), nullable=True, atomic=place in ATOMIC_FIELDS)
    if code == "any":
        return Node(preserve=True, nullable=True, atomic=True)
    if code == "quantity":
        return Node(quantity=True, nullable=True)
    if code == "intstr":
        return Node(int_or_string=True, nullable=True)
    if code in _SCALARS:
        return Node(_SCALARS[code], format=_FORMATS.get(code, ""), nullable=True)
    return builtin_node(code)


def openapi_schemas() -> dict[str, dict[str, Any]]:
    """All built-in types as OpenAPI v3 components."""
    return {name: _openapi_type(name, fields) for name, fields in _table().items()}


def openapi_closure(roots: set[str]) -> dict[str, dict[str, Any]]:
    """The named types and all that they refer to."""
    table, waiting, found = _table(), set(roots), set[str]()
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= {code for field in table[name] if (code := field.code.lstrip("[]{}")) in table} - found
    return {name: _openapi_type(name, table[name]) for name in sorted(found)}


def _openapi_type(name: str, fields: tuple[Field, ...]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "description": description(name),
        "properties": {field.name: _openapi_field(field.code, f"{name}.{field.name}") for field in fields},
    }
    required = [field.name for field in fields if field.required]
    if required:
        schema["required"] = required
    if name in ATOMIC_TYPES:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _openapi_field(code: str, place: str) -> dict[str, Any]:
    if code.startswith("[]"):
        return {"type": "array", "items": _openapi_field(code[2:], "")} | _merge_extensions(place)
    if code.startswith("{}"):
        return {"type": "object", "additionalProperties": _openapi_field(code[2:], "")}
    if code == "any":
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if code == "intstr":
        return {"type": "string", "format": "int-or-string", "x-kubernetes-int-or-string": True}
    if code == "quantity":
        return {"oneOf": [{"type": "string"}, {"type": "number"}]}
    if code in _SCALARS:
        schema = {"type": _SCALARS[code]}
        return schema | {"format": _FORMATS[code]} if code in _FORMATS else schema
    return {"allOf": [{"$ref": REF + code}], "default": {}}


def _merge_extensions(place: str) -> dict[str, Any]:
    merge = LISTS.get(place)
    if merge is None:
        return {"x-kubernetes-list-type": "atomic"} if place else {}
    extensions: dict[str, Any] = {"x-kubernetes-list-type": merge.list_type}
    if merge.keys:
        extensions["x-kubernetes-list-map-keys"] = list(merge.keys)
    if merge.patch_key:
        extensions["x-kubernetes-patch-strategy"] = "merge"
    if merge.patch_key not in ("", "*"):
        extensions["x-kubernetes-patch-merge-key"] = merge.patch_key
    return extensions


def description(type_name: str) -> str:
    """A few words for `kubectl explain`."""
    plain = re.sub("^(Core|Events|Authentication)?V1", "", type_name)
    return f"{plain} is a built-in Kubernetes type."
