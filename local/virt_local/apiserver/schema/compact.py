"""What is not set is not there: built-in objects are stored without nulls, empty maps and empty lists.

The real server reads them into structs and writes them without what is empty. An empty struct is something else: it
says "with all defaults" (`emptyDir: {}`), so it stays.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from virt_local.apiserver.schema.builtin import builtin_node
from virt_local.apiserver.schema.node import ARRAY, OBJECT, STRING, Node

#: Switches that are written only when they are on; others say "no" as clearly as "yes".
_SWITCHES = frozenset(
    (
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "stdin",
        "stdinOnce",
        "tty",
        "readOnly",
        "unschedulable",
        "publishNotReadyAddresses",
        "globalDefault",
    )
)


@cache
def metadata_node() -> Node:
    return builtin_node("V1ObjectMeta")


def compact(obj: dict[str, Any], node: Node) -> None:
    """Removes in place what stands for nothing."""
    for name in list(obj):
        child = node.child(name)
        if obj[name] is None:
            _unset(obj, name, node)
        elif obj[name] is False and name in _SWITCHES and child is not None:
            del obj[name]
        elif child is not None:
            _compact_value(obj[name], child)
            if _is_nothing(obj[name], child):
                del obj[name]


def _unset(obj: dict[str, Any], name: str, node: Node) -> None:
    """In a map of text a null is an empty text; a field is not there."""
    values = node.values
    if values is not None and values.type == STRING:
        obj[name] = ""
    elif not node.preserve:
        del obj[name]


def _compact_value(value: Any, node: Node) -> None:
    if node.preserve:
        return
    if isinstance(value, dict):
        compact(value, node)
    elif isinstance(value, list) and node.items is not None:
        # A null in a list is an item with nothing set, as for a reader that reads into structs.
        blank = {OBJECT: dict, STRING: str, ARRAY: list}.get(node.items.type)
        value[:] = [blank() if item is None and blank else item for item in value]
        for item in value:
            _compact_value(item, node.items)


def _is_nothing(value: Any, node: Node) -> bool:
    if value == []:
        return node.type == ARRAY and not node.kept_empty
    return value == {} and node.values is not None
