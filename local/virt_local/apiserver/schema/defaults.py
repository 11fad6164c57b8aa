"""Fills in the default values that a schema declares."""

from __future__ import annotations

import copy
from typing import Any

from virt_local.apiserver.schema.node import MISSING, Node


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
