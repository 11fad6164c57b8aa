"""Checks an object against a schema and reports every violation with the path of its field.

The words are those of the validator that the real server uses, so that what a user learned on one helps on the other.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from virt_local.apiserver.errors import Cause
from virt_local.apiserver.schema import formats
from virt_local.apiserver.schema.node import ARRAY, BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, Node

_LIMIT = 50
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
_TYPES: dict[type, str] = {str: STRING, bool: BOOLEAN, int: INTEGER, float: NUMBER, dict: OBJECT, list: ARRAY}


def validate(value: Any, node: Node, path: str = "") -> list[Cause]:
    causes: list[Cause] = []
    _value(value, node, path, causes)
    return causes[:_LIMIT]


def shown(value: Any) -> str:
    """A value as it stands in a message: JSON, cut when it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 128 else text[:125] + "..."


def bad_value(path: str, value: Any, why: str) -> Cause:
    return Cause(path, f"Invalid value: {shown(value)}: {why}", "FieldValueInvalid")


def required(path: str, why: str = "") -> Cause:
    return Cause(path, f"Required value{': ' + why if why else ''}", "FieldValueRequired")


def unsupported(path: str, value: Any, allowed: list[Any]) -> Cause:
    listed = ", ".join(shown(item) for item in allowed)
    return Cause(path, f"Unsupported value: {shown(value)}: supported values: {listed}", "FieldValueNotSupported")


def forbidden(path: str, why: str) -> Cause:
    return Cause(path, f"Forbidden: {why}", "FieldValueForbidden")


def _value(value: Any, node: Node, path: str, causes: list[Cause]) -> None:
    if value is None:
        if not (node.nullable or node.preserve or node.type == ""):
            causes.append(_wrong_type(path, value, node.type))
        return
    if not _type_fits(value, node):
        causes.append(_wrong_type(path, value, "integer,string" if node.int_or_string else node.type))
        if node.type == INTEGER and isinstance(value, float):
            causes.append(_half(path))
        return
    if node.checks or node.pattern or node.format:
        _checks(value, node, path, causes)
    if isinstance(value, dict):
        _object(value, node, path, causes)
    elif isinstance(value, list):
        _array(value, node, path, causes)


def _type_fits(value: Any, node: Node) -> bool:
    actual = _TYPES[type(value)]
    if node.int_or_string:
        return actual in (INTEGER, STRING)
    if node.quantity:
        return actual in (INTEGER, NUMBER) or (isinstance(value, str) and _QUANTITY.fullmatch(value) is not None)
    if node.type in ("", actual):
        return True
    if node.type == NUMBER:
        return actual == INTEGER
    return node.type == INTEGER and actual == NUMBER and float(value).is_integer()


def _wrong_type(path: str, value: Any, wanted: str) -> Cause:
    actual = "null" if value is None else _TYPES[type(value)]
    text = f'Invalid value: "{actual}": {path} in body must be of type {wanted}: "{actual}"'
    return Cause(path, text, "FieldValueTypeInvalid")


def _half(path: str) -> Cause:
    """What the real validator adds for a number that is no integer."""
    return _nowhere(f"Checked value must be of type integer (default format) in {path}")


def _nowhere(text: str) -> Cause:
    return Cause("<nil>", f'Invalid value: "": {text}')


def _object(value: dict[str, Any], node: Node, path: str, causes: list[Cause]) -> None:
    prefix = f"{path}." if path else ""
    causes.extend(required(prefix + name) for name in node.required if name not in value)
    if node.properties is None and node.values is None:
        return
    for name, item in value.items():
        child = node.child(name)
        if child is not None:
            _value(item, child, prefix + name, causes)


def _array(value: list[Any], node: Node, path: str, causes: list[Cause]) -> None:
    if node.items is None:
        return
    for index, item in enumerate(value):
        _value(item, node.items, f"{path}[{index}]", causes)
    if node.list_type in ("map", "set") and not node.typed:
        _unique(value, node, path, causes)


def _unique(value: list[Any], node: Node, path: str, causes: list[Cause]) -> None:
    seen: set[bytes] = set()
    for index, item in enumerate(value):
        identity = item
        if node.list_type == "map":
            identity = {key: item.get(key) for key in node.list_keys} if isinstance(item, dict) else item
        encoded = msgspec.json.encode(identity, order="sorted")
        if encoded in seen:
            causes.append(Cause(f"{path}[{index}]", f"Duplicate value: {shown(identity)}", "FieldValueDuplicate"))
        seen.add(encoded)


def _checks(value: Any, node: Node, path: str, causes: list[Cause]) -> None:
    checks = node.checks
    if "enum" in checks and value not in checks["enum"]:
        causes.append(unsupported(path, value, checks["enum"]))
    if isinstance(value, str):
        _text(value, node, path, causes)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _bounds(value, checks, path, causes)
    elif isinstance(value, list):
        _count(value, checks, path, "Items", causes)
        if checks.get("uniqueItems") and len({msgspec.json.encode(item) for item in value}) != len(value):
            causes.append(bad_value(path, value, f"{path} in body shouldn't contain duplicates"))
    elif isinstance(value, dict):
        _count(value, checks, path, "Properties", causes)
    _combinations(value, checks, path, causes)


def _text(value: str, node: Node, path: str, causes: list[Cause]) -> None:
    low, high = node.checks.get("minLength"), node.checks.get("maxLength")
    if low is not None and len(value) < low:
        causes.append(bad_value(path, value, f"{path} in body should be at least {low} chars long"))
    if high is not None and len(value) > high:
        causes.append(Cause(path, f"Too long: may not be more than {high} bytes", "FieldValueTooLong"))
    if node.pattern is not None and not node.pattern.search(value):
        causes.append(bad_value(path, value, f"{path} in body should match '{node.pattern.pattern}'"))
    if node.format and not formats.fits(value, node.format):
        text = f"Invalid value: {shown(value)}: {path} in body must be of type {node.format}: {shown(value)}"
        causes.append(Cause(path, text, "FieldValueTypeInvalid"))


def _count(value: Any, checks: dict[str, Any], path: str, what: str, causes: list[Cause]) -> None:
    low, high = checks.get(f"min{what}"), checks.get(f"max{what}")
    if low is not None and len(value) < low:
        causes.append(bad_value(path, len(value), f"{path} in body should have at least {low} {what.lower()}"))
    if high is not None and len(value) > high:
        causes.append(Cause(path, f"Too many: {len(value)}: must have at most {high} items", "FieldValueTooMany"))


def _bounds(value: float, checks: dict[str, Any], path: str, causes: list[Cause]) -> None:
    low, high, step = checks.get("minimum"), checks.get("maximum"), checks.get("multipleOf")
    if step and value % step:
        causes.append(bad_value(path, value, f"{path} in body should be a multiple of {step}"))
    if low is not None and (value < low or (value == low and checks.get("exclusiveMinimum"))):
        word = "greater than" if checks.get("exclusiveMinimum") else "greater than or equal to"
        causes.append(bad_value(path, value, f"{path} in body should be {word} {low}"))
    if high is not None and (value > high or (value == high and checks.get("exclusiveMaximum"))):
        word = "less than" if checks.get("exclusiveMaximum") else "less than or equal to"
        causes.append(bad_value(path, value, f"{path} in body should be {word} {high}"))


def _combinations(value: Any, checks: dict[str, Any], path: str, causes: list[Cause]) -> None:
    for part in checks.get("allOf", ()):
        _value(value, part, path, causes)
    if "anyOf" in checks and not any(_passes(value, part, path) for part in checks["anyOf"]):
        causes.append(_nowhere(f'"{path}" must validate at least one schema (anyOf)'))
        _value(value, checks["anyOf"][0], path, causes)
    if "oneOf" in checks:
        _one_of(value, checks["oneOf"], path, causes)
    if "not" in checks and _passes(value, checks["not"], path):
        causes.append(_nowhere(f'"{path}" must not validate the schema (not)'))


def _one_of(value: Any, parts: list[Node], path: str, causes: list[Cause]) -> None:
    valid = sum(_passes(value, part, path) for part in parts)
    text = f'"{path}" must validate one and only one schema (oneOf).'
    if valid > 1:
        causes.append(_nowhere(f"{text} Found {valid} valid alternatives"))
    elif not valid:
        causes.append(_nowhere(f"{text} Found none valid"))
        _value(value, parts[0], path, causes)


def _passes(value: Any, node: Node, path: str) -> bool:
    return not validate(value, node, path)
