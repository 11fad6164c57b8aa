"""Fills in the default values that a schema declares."""

from __future__ import annotations

import copy
from typing import Any

from virt_local.apiserver.schema.node import MISSING, Node


def drop_nulls(value: Any, node: Node) -> None:
    """A null where none may be, and no default stands for it, is as if it were not there."""
    if isinstance(value, list):
        for item in value if node.items is not None else ():
            drop_nulls(item, node.items or node)
        return
    if not isinstance(value, dict):
        return
    for name in list(value):
        child = node.child(name)
        if child is None:
            continue
        if value[name] is None and not child.nullable and child.default is MISSING and child.type:
            del value[name]
        else:
            drop_nulls(value[name], child)


def apply_defaults(value: Any, node: Node) -> None:
    """Adds defaults in place, also to nulls of fields that may not be null (as Kubernetes does)."""
    if not node.has_defaults:
        return
    if isinstance(value, dict):
        _fill_object(value, node)
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            apply_defaults(item, node.items)


def _fill_object(value: dict[str, Any], node: Node) -> None:
    for name, child in (node.properties or {}).items():
        if child.default is MISSING:
            continue
        if name not in value or (value[name] is None and not child.nullable):
            value[name] = copy.deepcopy(child.default)
    for name, item in value.items():
        known = node.child(name)
        if known is not None:
            apply_defaults(item, known)
