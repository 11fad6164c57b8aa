"""Strategic merge patch: a merge patch that joins lists by the key that their type declares.

Directives: `$patch: replace|delete|merge` in a map or a list item, `$deleteFromPrimitiveList/<field>`,
`$setElementOrder/<field>` and `$retainKeys`.
"""

from __future__ import annotations

from typing import Any

from virt_local.apiserver import errors
from virt_local.apiserver.schema.node import Node

_PATCH, _RETAIN = "$patch", "$retainKeys"
_ORDER, _DELETE = "$setElementOrder/", "$deleteFromPrimitiveList/"

Object = dict[str, Any]


def apply_strategic_patch(document: Object, patch: Any, node: Node) -> Object:
    if not isinstance(patch, dict):
        raise errors.bad_request("a strategic merge patch is an object")
    return _merge_map(document, patch, node)


def _merge_map(document: Object, patch: Object, node: Node | None) -> Object:
    directive = patch.get(_PATCH)
    if directive == "replace":
        replaced: Object = _plain(patch)
        return replaced
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise errors.storage(f"Unknown patch type found: {directive}")
    result = dict(document)
    if isinstance(patch.get(_RETAIN), list):
        result = {key: value for key, value in result.items() if key in patch[_RETAIN]}
    for key, value in patch.items():
        if key.startswith(_DELETE):
            field = key.removeprefix(_DELETE)
            result[field] = [item for item in result.get(field) or () if item not in (value or ())]
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(result, key, value, patch.get(_ORDER + key), node)
    return result


def _merge_field(result: Object, key: str, value: Any, order: Any, node: Node | None) -> None:
    child = node.child(key) if node is not None else None
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        current = result.get(key)
        result[key] = _merge_map(current if isinstance(current, dict) else {}, value, child)
    elif isinstance(value, list) and child is not None and child.merge_key:
        current = result.get(key)
        merged = _merge_list(current if isinstance(current, list) else [], value, child)
        result[key] = _ordered(merged, order, child.merge_key) if isinstance(order, list) else merged
    else:
        result[key] = value


def _merge_list(current: list[Any], patch: list[Any], node: Node) -> list[Any]:
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in patch):
        return [_plain(item) for item in patch if not (isinstance(item, dict) and set(item) == {_PATCH})]
    if node.merge_key == "*":
        return patch + [item for item in current if item not in patch]
    result = list(current)
    for item in patch:
        _merge_item(result, item, node)
    return result


def _merge_item(result: list[Any], item: Any, node: Node) -> None:
    key = node.merge_key
    if not isinstance(item, dict) or key not in item:
        raise errors.storage(f"map: {item} does not contain declared merge key: {key}")
    index = next((i for i, old in enumerate(result) if isinstance(old, dict) and old.get(key) == item[key]), None)
    if item.get(_PATCH) == "delete":
        if index is not None:
            del result[index]
    elif index is None:
        result.append(_merge_map({}, item, node.items))
    else:
        result[index] = _merge_map(result[index], item, node.items)


def _ordered(items: list[Any], order: list[Any], merge_key: str) -> list[Any]:
    """Items that the order names come in its order; the others keep their place relative to what was before them."""

    def identity(item: Any) -> Any:
        return item.get(merge_key) if isinstance(item, dict) and merge_key != "*" else item

    wanted = [identity(item) for item in order]
    named = sorted((item for item in items if identity(item) in wanted), key=lambda item: wanted.index(identity(item)))
    rest = [(index, item) for index, item in enumerate(items) if identity(item) not in wanted]
    result = list(named)
    for index, item in rest:
        result.insert(min(index, len(result)), item)
    return result


def _plain(value: Any) -> Any:
    """A value without directives and nulls."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if not key.startswith("$") and item is not None}
        return {key: _plain(item) for key, item in kept.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
