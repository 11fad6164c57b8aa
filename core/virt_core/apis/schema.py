"""Struct → OpenAPI v3 structural schema, as a CustomResourceDefinition wants it.

Descriptions come from the source: a struct's docstring, and the `#:` comment behind or above a field. They cost nothing
at run time, and `kubectl explain` shows them.
"""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect as types

from virt_core.apis.meta import ObjectMeta

Schema = dict[str, Any]

_PRESERVE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TYPE_META: Schema = {
    "apiVersion": {"type": "string", "description": "The version of the schema that this object is written in."},
    "kind": {"type": "string", "description": "What this object is."},
    "metadata": {"type": "object"},
}


def object_schema(cls: type[msgspec.Struct]) -> Schema:
    """The schema of a top-level kind. Its metadata is checked by the API server itself."""
    schema = struct_schema(cls)
    properties = schema["properties"]
    schema["properties"] = {**_TYPE_META, **{k: v for k, v in properties.items() if k not in _TYPE_META}}
    return schema


def struct_schema(cls: type[msgspec.Struct]) -> Schema:
    """The schema of any struct, with its fields' descriptions."""
    info = types.type_info(cls)
    if not isinstance(info, types.StructType):
        raise TypeError(f"{cls.__name__} is not a struct")
    return _struct(info)


def _struct(info: types.StructType) -> Schema:
    if info.cls is ObjectMeta:
        return dict(_PRESERVE)
    described = field_descriptions(info.cls)
    properties: Schema = {}
    required: list[str] = []
    for field in info.fields:
        schema = _schema(field.type)
        if text := described.get(field.name):
            schema["description"] = text
        properties[field.encode_name] = schema
        if field.required or _is_required(field.type):
            required.append(field.encode_name)
    schema = {"type": "object", "description": inspect.cleandoc(info.cls.__doc__ or "")}
    if properties:
        schema["properties"] = properties
    if required:
        schema["required"] = sorted(required)
    return schema


def _is_required(info: types.Type) -> bool:
    return isinstance(info, types.Metadata) and bool((info.extra or {}).get("required"))


def _schema(info: types.Type) -> Schema:
    build = _BUILDERS.get(type(info))
    if build is None:
        raise TypeError(f"no schema for {info}")
    return build(info)


def _metadata(info: Any) -> Schema:
    extra = info.extra_json_schema or {}
    if "x-kubernetes-int-or-string" in extra:
        return dict(extra)
    return {**_schema(info.type), **extra}


def _union(info: Any) -> Schema:
    rest = [member for member in info.types if not isinstance(member, types.NoneType)]
    if len(rest) != 1:
        raise TypeError(f"a union of {len(rest)} types has no structural schema: annotate it")
    schema = _schema(rest[0])
    if schema.get("format") == "date-time":
        schema["nullable"] = True
    return schema


def _integer(info: Any) -> Schema:
    bounds = {"minimum": info.ge, "maximum": info.le}
    return {"type": "integer", "format": "int64", **{k: v for k, v in bounds.items() if v is not None}}


def _literal(info: Any) -> Schema:
    return {"type": "string", "enum": sorted(info.values)}


def _list(info: Any) -> Schema:
    return {"type": "array", "items": _schema(info.item_type)}


def _dict(info: Any) -> Schema:
    if isinstance(info.value_type, types.AnyType):
        return dict(_PRESERVE)
    return {"type": "object", "additionalProperties": _schema(info.value_type)}


_BUILDERS: dict[type, Callable[[Any], Schema]] = {
    types.Metadata: _metadata,
    types.UnionType: _union,
    types.StructType: _struct,
    types.ListType: _list,
    types.DictType: _dict,
    types.IntType: _integer,
    types.LiteralType: _literal,
    types.StrType: lambda _: {"type": "string"},
    types.BoolType: lambda _: {"type": "boolean"},
    types.FloatType: lambda _: {"type": "number"},
    types.AnyType: lambda _: {"x-kubernetes-preserve-unknown-fields": True},
}


def field_descriptions(cls: type[Any]) -> dict[str, str]:
    """Field name → its `#:` comment, read from the source of the class."""
    source = textwrap.dedent(inspect.getsource(cls))
    comments = _comments(source)
    definition = ast.parse(source).body[0]
    if not isinstance(definition, ast.ClassDef):
        raise TypeError(f"{cls!r} is not a class definition")
    found: dict[str, str] = {}
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = comments.get((node.end_lineno or node.lineno, True)) or comments.get((node.lineno - 1, False))
            if text:
                found[node.target.id] = text
    return found


def _comments(source: str) -> dict[tuple[int, bool], str]:
    """(line, behind code?) → text of the `#:` comments."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.string.startswith("#:"):
            behind_code = bool(token.line[: token.start[1]].strip())
            found[token.start[0], behind_code] = token.string.removeprefix("#:").strip()
    return found
