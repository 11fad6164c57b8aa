"""Removes the fields that a schema does not know, and says which they were."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.schema.node import Node


def prune(value: Any, node: Node, path: str = "") -> list[str]:
    """Removes unknown fields in place. Returns their paths, in the order they were met."""
    unknown: list[str] = []
    _walk(value, node, path, unknown)
    return unknown


def _walk(value: Any, node: Node, path: str, unknown: list[str]) -> None:
    if isinstance(value, dict):
        _walk_object(value, node, path, unknown)
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                _walk(item, node.items, f"{path}[{index}]", unknown)


def _walk_object(value: dict[str, Any], node: Node, path: str, unknown: list[str]) -> None:
    keeps_all = node.preserve or (node.properties is None and node.values is None and node.type == "")
    surplus: list[str] = []
    for name, item in value.items():
        child = node.child(name)
        if child is None:
            if not keeps_all:
                surplus.append(name)
        elif isinstance(item, dict | list):
            _walk(item, child, f"{path}.{name}" if path else name, unknown)
    for name in surplus:
        del value[name]
        unknown.append(f"{path}.{name}" if path else name)
