"""From the JSON that a user wrote to a struct, without losing what is wrong with it.

msgspec drops unknown fields and stops at the first mistake. Here every unknown field, unreadable quantity and missing
object is named with its path; a missing plain value becomes the empty one, so that the rules can speak of it; numbers
where a quantity is expected become the text that Kubernetes would store.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from functools import cache
from operator import is_
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import inspect as types

from virt_api.admission.bounds import MAX_ENTRIES, MAX_MISTAKES, too_long
from virt_api.admission.causes import Cause, Refused, invalid, required
from virt_core.apis.base import from_plain
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.quantity import QuantityError, canonical

T = TypeVar("T")

#: Beside the sign.
_INT_BITS = 63
_AT = re.compile(r" - at `(?:key in )?\$(.*?)`$")


class Shape(NamedTuple):
    """What the walk must know of a type."""

    kind: str  # struct, list, dict, quantity, text, number, leaf
    fields: dict[str, Shape] = {}
    item: Shape | None = None
    required: bool = False
    #: Entries of a list or map.
    limit: int = MAX_ENTRIES


def read(data: Any, cls: type[T], path: str) -> T:
    """The document as a struct. Raises Refused with every mistake of its form."""
    if not isinstance(data, dict):
        raise Refused([required(path, "must be an object")])
    fixed, causes = check(data, cls, path)
    if causes:
        raise Refused(causes)
    try:
        return from_plain(fixed, cls)
    except msgspec.ValidationError as error:
        raise Refused([_mistyped(error, path)]) from error


def check(data: dict[str, Any], cls: type[Any], path: str) -> tuple[Any, list[Cause]]:
    """The repaired copy of the document, and what cannot be repaired."""
    causes: list[Cause] = []
    shape = _shape_of(cast(Hashable, cls))
    return _walk(data, shape, path, causes), causes


def _walk(node: Any, shape: Shape, path: str, causes: list[Cause]) -> Any:
    if shape.kind == "quantity":
        return _quantity(node, path, causes)
    if shape.kind == "struct" and isinstance(node, dict):
        return _struct(node, shape, path, causes)
    if isinstance(node, int) and node.bit_length() > _INT_BITS:
        causes.append(invalid(path, f"has {node.bit_length()} bits; a number has at most {_INT_BITS}"))
        return 0
    if shape.item and isinstance(node, dict | list) and len(node) > shape.limit:
        causes.append(too_long(path, len(node), shape.limit))
        return node
    if shape.kind == "list" and isinstance(node, list) and shape.item:
        return [_walk(item, shape.item, f"{path}[{i}]", causes) for i, item in enumerate(node)]
    if shape.kind == "dict" and isinstance(node, dict) and shape.item:
        return {key: _walk(item, shape.item, f"{path}.{key}", causes) for key, item in node.items()}
    return node


def without_fractions(data: Any, cls: type[Any]) -> Any:
    """The document with quantities such as 2.2 as text: the schema takes whole numbers and texts only. The rest stays
    as it was written, and is the very same object where nothing changed."""
    return _as_text(data, _shape_of(cast(Hashable, cls)))


def _as_text(node: Any, shape: Shape) -> Any:
    if shape.kind == "quantity":
        return canonical(node) if isinstance(node, float) else node
    if isinstance(node, list) and shape.item:
        items = [_as_text(item, shape.item) for item in node]
        return node if all(map(is_, items, node)) else items
    if not isinstance(node, dict):
        return node
    inner = {key: shape.fields.get(key, shape.item) for key in node}
    found = {key: _as_text(value, at) if (at := inner[key]) else value for key, value in node.items()}
    return node if all(map(is_, found.values(), node.values())) else found


def _struct(node: dict[str, Any], shape: Shape, path: str, causes: list[Cause]) -> dict[str, Any]:
    found = {}
    for key, value in node.items():
        if len(causes) >= MAX_MISTAKES:
            raise Refused(causes)
        if key not in shape.fields:
            causes.append(invalid(f"{path}.{key}", "unknown field"))
        elif value is not None:
            found[key] = _walk(value, shape.fields[key], f"{path}.{key}", causes)
    for key, field in shape.fields.items():
        if field.required and key not in found:
            if field.kind in _EMPTY:
                found[key] = _EMPTY[field.kind]
            else:
                causes.append(required(f"{path}.{key}", "must be given"))
    return found


_EMPTY: dict[str, Any] = {"text": "", "number": 0}


def _quantity(node: Any, path: str, causes: list[Cause]) -> Any:
    if not isinstance(node, str | int | float):
        causes.append(invalid(path, "must be a quantity such as 128Mi"))
        return node
    try:
        return canonical(node)
    except QuantityError as error:
        causes.append(invalid(path, str(error)))
        return node


def _mistyped(error: msgspec.ValidationError, path: str) -> Cause:
    text = str(error)
    at = _AT.search(text)
    return invalid(path + at.group(1) if at else path, text[: at.start()] if at else text)


@cache
def _shape_of(cls: Any) -> Shape:
    return _shape(types.type_info(cls))


def _shape(info: Any) -> Shape:
    needed, limit = False, MAX_ENTRIES
    for meta in _metadata(info):
        needed = needed or bool((meta.extra or {}).get("required"))
        extra = meta.extra_json_schema or {}
        limit = extra.get("maxItems", limit)
        if "x-kubernetes-int-or-string" in extra:
            return Shape("quantity" if "pattern" in extra else "leaf", required=needed)
    shape = _bare_shape(_unwrap(info))
    return shape._replace(required=needed, limit=limit)


def _bare_shape(info: Any) -> Shape:
    if isinstance(info, types.StructType):
        if info.cls is ObjectMeta:
            return Shape("leaf")  # A template's metadata keeps what nobody here knows.
        return Shape("struct", {f.encode_name: _field_shape(f) for f in info.fields})
    if isinstance(info, types.ListType):
        return Shape("list", item=_shape(info.item_type))
    if isinstance(info, types.DictType):
        return Shape("dict", item=_shape(info.value_type))
    if isinstance(info, types.StrType):
        return Shape("text")
    return Shape("number" if isinstance(info, types.IntType) else "leaf")


def _field_shape(field: types.Field) -> Shape:
    shape = _shape(field.type)
    return shape._replace(required=shape.required or field.required)


def _metadata(info: Any) -> Iterator[types.Metadata]:
    return (layer for layer in _layers(info) if isinstance(layer, types.Metadata))


def _unwrap(info: Any) -> Any:
    return list(_layers(info))[-1]


def _layers(info: Any) -> Iterator[Any]:
    """The type without its annotations and without `| None`, and everything around it, outermost first."""
    yield info
    if isinstance(info, types.Metadata):
        yield from _layers(info.type)
    elif isinstance(info, types.UnionType):
        rest = [member for member in info.types if not isinstance(member, types.NoneType)]
        if len(rest) == 1:
            yield from _layers(rest[0])
