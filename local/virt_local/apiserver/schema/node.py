"""A schema in the form that all its users walk: one Node for each place in an object.

Built-in kinds and CRDs compile to the same nodes, so that pruning, defaults, validation, strategic merge and
server-side apply exist once. Nodes of built-in types may be recursive; they are shared and do not change once made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]
MISSING: Any = object()

ANY, STRING, INTEGER, NUMBER, BOOLEAN, OBJECT, ARRAY = "", "string", "integer", "number", "boolean", "object", "array"


@dataclass(slots=True, eq=False)
class Node:
    """`properties` lists known fields, `values` describes all others; an object with neither keeps nothing."""

    type: str = ANY
    properties: dict[str, Node] | None = None
    values: Node | None = None
    items: Node | None = None
    preserve: bool = False  # x-kubernetes-preserve-unknown-fields
    nullable: bool = False
    int_or_string: bool = False
    quantity: bool = False
    embedded: bool = False
    format: str = ""
    default: Any = MISSING
    required: tuple[str, ...] = ()
    checks: Schema = field(default_factory=dict)  # enum, pattern, bounds and the logical combinations
    pattern: re.Pattern[str] | None = None
    list_type: str = "atomic"  # atomic, set, map
    list_keys: tuple[str, ...] = ()
    atomic: bool = False  # x-kubernetes-map-type: atomic
    merge_key: str = ""  # strategic merge: the key of a merged list, or "*" for a merged set
    has_defaults: bool = False
    rules: tuple[Schema, ...] = ()  # x-kubernetes-validations
    has_rules: bool = False  # here or anywhere below
    typed: bool = False  # of a built-in type, which the server reads into a struct
    kept_empty: bool = False  # an empty list of a built-in type that is written as such

    def child(self, name: str) -> Node | None:
        """The schema of one field, or None when it is unknown here."""
        if self.properties is not None and name in self.properties:
            return self.properties[name]
        return self.values


_CHECKS = (
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
)
_COMBINATIONS = ("allOf", "anyOf", "oneOf")


def compile_schema(schema: Schema) -> Node:
    """A structural OpenAPI v3 schema (no $ref) as a Node."""
    node = Node(type=schema.get("type", ANY), nullable=bool(schema.get("nullable")), format=schema.get("format", ""))
    node.int_or_string = bool(schema.get("x-kubernetes-int-or-string"))
    node.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    node.embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    node.default = schema.get("default", MISSING)
    node.required = tuple(schema.get("required") or ())
    _compile_children(node, schema)
    _compile_checks(node, schema)
    _compile_merging(node, schema)
    node.has_defaults = _any_defaults(node)
    node.rules = tuple(schema.get("x-kubernetes-validations") or ())
    node.has_rules = bool(node.rules) or any(child.has_rules for child in _children(node))
    return node


def _children(node: Node) -> list[Node]:
    children = [*(node.properties or {}).values(), node.values, node.items]
    return [child for child in children if child is not None]


def _compile_children(node: Node, schema: Schema) -> None:
    if schema.get("properties"):
        node.properties = {name: compile_schema(child) for name, child in schema["properties"].items()}
    if node.embedded:
        # apiVersion, kind and metadata of an embedded object are known without being declared.
        implied = {"apiVersion": Node(STRING), "kind": Node(STRING), "metadata": Node(OBJECT, preserve=True)}
        node.properties = implied | (node.properties or {})
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        node.values = compile_schema(extra)
    elif extra is True:
        node.values = Node(preserve=True)
    if isinstance(schema.get("items"), dict):
        node.items = compile_schema(schema["items"])


def _compile_checks(node: Node, schema: Schema) -> None:
    node.checks = {name: schema[name] for name in _CHECKS if schema.get(name) is not None}
    for name in _COMBINATIONS:
        if schema.get(name):
            node.checks[name] = [compile_schema(part) for part in schema[name]]
    if schema.get("not"):
        node.checks["not"] = compile_schema(schema["not"])
    if schema.get("pattern"):
        node.pattern = re.compile(schema["pattern"])


def _compile_merging(node: Node, schema: Schema) -> None:
    node.list_type = schema.get("x-kubernetes-list-type") or "atomic"
    node.list_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    node.atomic = schema.get("x-kubernetes-map-type") == "atomic"


def _any_defaults(node: Node) -> bool:
    if node.default is not MISSING:
        return True
    return any(child.has_defaults for child in _children(node))
