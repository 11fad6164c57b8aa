"""Values for any field of the API, made from its struct: the least that has the right form."""

from __future__ import annotations

from typing import Any

from msgspec import inspect as types


def put(document: dict[str, Any], path: str, cls: type[Any]) -> str:
    """Sets the field at `a.b[].c=value` in the document to a value of its type; gives the path with its indexes.

    Raises KeyError when the struct has no such field.
    """
    names, _, values = path.partition("=")
    info, node, exact, steps = _bare(types.type_info(cls)), document, "", names.split(".")
    for last, step in ((i == len(steps) - 1, step) for i, step in enumerate(steps)):
        name = step.removesuffix("[]")
        info = _bare(_field(info, name).type)
        exact += f".{name}"
        if last:
            node[name] = values.split("|")[0] if values else sample(info)
        elif step.endswith("[]"):
            entries = node.setdefault(name, [])
            info = _bare(info.item_type)
            if not entries:
                entries.append(sample(info))
            node, exact = entries[0], f"{exact}[0]"
        else:
            node = node.setdefault(name, {})
    return exact.removeprefix(".")


def sample(info: Any) -> Any:
    info = _bare(info)
    if isinstance(info, types.StructType):
        return {field.encode_name: sample(field.type) for field in info.fields if _required(field)}
    if isinstance(info, types.ListType):
        return [sample(info.item_type)]
    if isinstance(info, types.DictType):
        return {"key": sample(info.value_type)}
    if isinstance(info, types.BoolType):
        return True
    return 1 if isinstance(info, types.IntType) else "sample"


def _field(info: Any, name: str) -> types.Field:
    return {field.encode_name: field for field in info.fields}[name]


def _required(field: types.Field) -> bool:
    info = field.type
    marked = isinstance(info, types.Metadata) and bool((info.extra or {}).get("required"))
    return field.required or marked


def _bare(info: Any) -> Any:
    """The type without its annotations and without `| None`."""
    if isinstance(info, types.Metadata):
        return _bare(info.type)
    if isinstance(info, types.UnionType):
        return _bare(next(member for member in info.types if not isinstance(member, types.NoneType)))
    return info
