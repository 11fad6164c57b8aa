"""Sets of fields in the form of managedFields (FieldsV1): a tree whose keys say how to get from one place to the next.

`f:name` is a field, `k:{"name":"a"}` an item of a list by its keys, `v:"x"` an item by its value. A place is in the
set when its subtree is empty or holds `.`; other places only lead to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from virt_local.apiserver.schema.node import Node

FieldSet = dict[str, Any]
Path = tuple[str, ...]

SELF = "."
ABSENT: Any = object()


def whole(value: Any, node: Node | None) -> FieldSet:
    """Everything in a value that is new, its own place included."""
    inner = _inner(value, node, whole)
    return {SELF: {}, **inner} if inner else {}


def applied(value: Any, node: Node | None) -> FieldSet:
    """What somebody who applies this value wants: the values themselves, not the maps and lists around them."""
    return _inner(value, node, applied)


def _inner(value: Any, node: Node | None, describe: Any) -> FieldSet:
    if isinstance(value, dict) and not (node is not None and node.atomic):
        return {f"f:{key}": describe(item, node.child(key) if node else None) for key, item in value.items()}
    if isinstance(value, list) and node is not None and node.list_type != "atomic":
        fields: FieldSet = {}
        for item in value:
            key = item_key(item, node)
            inner = describe(item, node.items) if key.startswith("k:") else {}
            fields[key] = {SELF: {}, **inner} if inner else {}
        return fields
    return {}


def item_key(item: Any, node: Node) -> str:
    """The path element of a list item: by its keys in a map-like list, by its value in a set."""
    if node.list_type == "map" and isinstance(item, dict):
        keys = {key: item.get(key, _implied(key)) for key in node.list_keys}
        return "k:" + msgspec.json.encode({k: v for k, v in keys.items() if v is not None}, order="sorted").decode()
    return "v:" + msgspec.json.encode(item).decode()


def _implied(key: str) -> Any:
    """The one list key that has a default."""
    return "TCP" if key == "protocol" else None


def changed(old: Any, new: Any, node: Node | None) -> FieldSet | None:
    """What of a new value is added or different; None when nothing is."""
    if old is ABSENT:
        return whole(new, node)
    if old == new:
        return None
    if isinstance(new, dict) and isinstance(old or {}, dict) and not (node is not None and node.atomic):
        before = old or {}
        parts = ((f"f:{k}", before.get(k, ABSENT), v, node.child(k) if node else None) for k, v in new.items())
        return _collected(parts)
    if isinstance(new, list) and isinstance(old or [], list) and node is not None and node.list_type != "atomic":
        known = {item_key(item, node): item for item in old or ()}
        items = ((item_key(v, node), v) for v in new)
        return _collected((key, known.get(key, ABSENT), v, node.items) for key, v in items)
    return {}


def loses(old: Any, new: Any) -> bool:
    """True when something is in the old value that may not be in the new one. Lists are not looked into."""
    if old == new:
        return False
    if isinstance(old, dict) and isinstance(new, dict):
        return any(key not in new or loses(value, new[key]) for key, value in old.items())
    return isinstance(old, dict | list)


def _collected(parts: Iterator[tuple[str, Any, Any, Node | None]]) -> FieldSet | None:
    found: FieldSet = {}
    for key, old, new, node in parts:
        fields = changed(old, new, node)
        if fields is not None:
            found[key] = {SELF: {}, **fields} if old is ABSENT and key.startswith("k:") and fields else fields
    return found or None


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    result = dict(left)
    for key, fields in right.items():
        result[key] = _joined(result[key], fields) if key in result else fields
    return result


def _joined(left: FieldSet, right: FieldSet) -> FieldSet:
    """Two subtrees of one place. An empty one has the place itself."""
    if not left or not right:
        both = left or right
        return {SELF: {}, **both} if both else {}
    return union(left, right)


def minus(left: FieldSet, right: FieldSet) -> FieldSet:
    """What is in the left set only."""
    result = dict(left)
    for key, fields in right.items():
        if key in result and key != SELF:
            rest = _without(result[key], fields)
            if rest is None:
                del result[key]
            else:
                result[key] = rest
    return result


def _without(left: FieldSet, right: FieldSet) -> FieldSet | None:
    """One place's subtree without another; None when nothing is left of it."""
    own = has_self(left) and not has_self(right)
    rest = minus({key: value for key, value in left.items() if key != SELF}, right)
    if own:
        return {SELF: {}, **rest} if rest else {}
    return rest or None


def has_self(fields: FieldSet) -> bool:
    return not fields or SELF in fields


def present(fields: FieldSet, value: Any, node: Node | None) -> FieldSet:
    """The part of a set whose places exist in a value."""
    result: FieldSet = {}
    for key, inner in fields.items():
        if key == SELF:
            result[key] = inner
            continue
        item, child = _step(value, key, node)
        if item is ABSENT:
            continue
        kept = present(inner, item, child)
        if kept or has_self(inner):
            result[key] = kept
    return result


def paths(fields: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """Every place in a set."""
    for key, inner in fields.items():
        if key == SELF:
            yield prefix
        elif not inner:
            yield (*prefix, key)
        else:
            yield from paths(inner, (*prefix, key))


def common(left: FieldSet, right: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """The places that are in both sets."""
    for key in left.keys() & right.keys() - {SELF}:
        mine, theirs = left[key], right[key]
        if has_self(mine) and has_self(theirs):
            yield (*prefix, key)
        yield from common(mine, theirs, (*prefix, key))


def _step(value: Any, key: str, node: Node | None) -> tuple[Any, Node | None]:
    if key.startswith("f:"):
        name = key[2:]
        if not isinstance(value, dict) or name not in value:
            return ABSENT, None
        return value[name], node.child(name) if node else None
    if not isinstance(value, list) or node is None:
        return ABSENT, None
    found = next((item for item in value if item_key(item, node) == key), ABSENT)
    return found, node.items


def remove_at(obj: Any, path: Path, node: Node | None) -> None:
    """Removes a place, when it is there."""
    for key in path[:-1]:
        obj, node = _step(obj, key, node)
        if obj is ABSENT:
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
