"""Sets of fields, as server-side apply records them in managedFields (FieldsV1).

A set is a tree of dicts in FieldsV1's own form: `f:name` a field, `k:{…}` a list item by its keys, `v:…` an item of a
set. `.` marks that the place itself is owned, not only what is in it. A leaf is an empty dict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from virt_local.apiserver.schema.node import Node

FieldSet = dict[str, Any]
Path = tuple[str, ...]

SELF = "."
# Not anybody's: the identity of the object and what the server writes.
_STRIPPED = ("apiVersion", "kind")
_STRIPPED_META = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)


def fields_of(obj: dict[str, Any], node: Node) -> FieldSet:
    """All fields that an object sets."""
    body = {key: value for key, value in obj.items() if key not in _STRIPPED}
    if isinstance(body.get("metadata"), dict):
        body["metadata"] = {key: value for key, value in body["metadata"].items() if key not in _STRIPPED_META}
        if not body["metadata"]:
            del body["metadata"]
    fields = _map_fields(body, node)
    fields.get("f:metadata", {}).pop(SELF, None)
    return {key: value for key, value in fields.items() if key != SELF}


def _value_fields(value: Any, node: Node | None) -> FieldSet:
    if isinstance(value, dict) and value and not (node is not None and node.atomic):
        return {SELF: {}} | _map_fields(value, node)
    if isinstance(value, list) and value and node is not None and node.list_type != "atomic":
        return {SELF: {}} | _list_fields(value, node)
    return {}


def _map_fields(value: dict[str, Any], node: Node | None) -> FieldSet:
    return {f"f:{key}": _value_fields(item, node.child(key) if node else None) for key, item in value.items()}


def _list_fields(value: list[Any], node: Node) -> FieldSet:
    fields: FieldSet = {}
    for item in value:
        key = item_key(item, node)
        fields[key] = _value_fields(item, node.items) if key.startswith("k:") else {}
        if key.startswith("k:"):
            fields[key].setdefault(SELF, {})
    return fields


def item_key(item: Any, node: Node) -> str:
    """The path element of a list item: by its keys in a map-like list, by its value in a set."""
    if node.list_type == "map" and isinstance(item, dict):
        keys = {key: item.get(key, _implied(key)) for key in node.list_keys}
        return "k:" + msgspec.json.encode({k: v for k, v in keys.items() if v is not None}, order="sorted").decode()
    return "v:" + msgspec.json.encode(item).decode()


def _implied(key: str) -> Any:
    """The one list key that has a default."""
    return "TCP" if key == "protocol" else None


def paths(fields: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """Every owned place."""
    for key, inner in fields.items():
        if key == SELF:
            yield prefix
        elif not inner:
            yield (*prefix, key)
        else:
            yield from paths(inner, (*prefix, key))


def from_paths(owned: set[Path]) -> FieldSet:
    result: FieldSet = {}
    for path in sorted(owned):
        place = result
        for key in path:
            place = place.setdefault(key, {})
    for path in owned:
        place = result
        for key in path:
            place = place[key]
        if place:
            place[SELF] = {}
    return result


_ABSENT: Any = object()


def value_at(obj: Any, path: Path, node: Node | None) -> Any:
    """The value at a place, or `_ABSENT`. Compare with `is_absent`."""
    value = obj
    for key in path:
        value, node = _step(value, key, node)
        if value is _ABSENT:
            return _ABSENT
    return value


def is_absent(value: Any) -> bool:
    return value is _ABSENT


def _step(value: Any, key: str, node: Node | None) -> tuple[Any, Node | None]:
    if key.startswith("f:"):
        name = key[2:]
        if not isinstance(value, dict) or name not in value:
            return _ABSENT, None
        return value[name], node.child(name) if node else None
    if not isinstance(value, list) or node is None:
        return _ABSENT, None
    found = next((item for item in value if item_key(item, node) == key), _ABSENT)
    return found, node.items


def remove_at(obj: Any, path: Path, node: Node | None) -> None:
    """Removes a place, when it is there."""
    for key in path[:-1]:
        obj, node = _step(obj, key, node)
        if obj is _ABSENT:
            return
    last = path[-1]
    if last.startswith("f:") and isinstance(obj, dict):
        obj.pop(last[2:], None)
    elif isinstance(obj, list) and node is not None:
        obj[:] = [item for item in obj if item_key(item, node) != last]


def shown(path: Path) -> str:
    """A place in the words of a conflict message: `.spec.containers[name="a"].image`."""
    text = ""
    for key in path:
        if key.startswith("f:"):
            text += f".{key[2:]}"
        elif key.startswith("k:"):
            keys = msgspec.json.decode(key[2:])
            text += "[" + ",".join(f"{k}={msgspec.json.encode(v).decode()}" for k, v in keys.items()) + "]"
        else:
            text += f"[={key[2:]}]"
    return text
