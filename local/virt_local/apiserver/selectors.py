"""Label and field selectors: parsed once, asked for every record."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from virt_core.apis.base import from_plain
from virt_core.apis.meta import LabelSelector
from virt_core.apis.scheduling import NodeSelectorRequirement
from virt_core.apis.selectors import DOES_NOT_EXIST, EXISTS, GREATER, IN, LESS, NOT_IN, all_hold, matches
from virt_local.apiserver import errors
from virt_local.apiserver.builtins.events import stored_field
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.storage.record import Record, field_value

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]
RecordTest = Callable[[Record], bool]

_KEY = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9._-]*"
_SET = re.compile(rf"\s*(?P<key>{_KEY})\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*")
_EQUALITY = re.compile(rf"\s*(?P<key>{_KEY})\s*(?P<op>==|=|!=)\s*(?P<value>{_VALUE})\s*")
_NUMBER = re.compile(rf"\s*(?P<key>{_KEY})\s*(?P<op>[<>])\s*(?P<value>-?\d+)\s*")
_EXISTS = re.compile(rf"\s*(?P<absent>!)?\s*(?P<key>{_KEY})\s*")


def _split(text: str) -> list[str]:
    """Cuts at commas that are not inside parentheses."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def parse_labels(text: str) -> LabelTest:
    """`app=web,tier in (a,b),!old` as a test. Raises a 400 for text that is no selector."""
    requirements = [_requirement(part) for part in _split(text) if part.strip()]
    return lambda labels: all_hold(requirements, labels)


def _requirement(text: str) -> NodeSelectorRequirement:
    if match := _SET.fullmatch(text):
        values = [value.strip() for value in match["values"].split(",")]
        return NodeSelectorRequirement(match["key"], IN if match["op"] == "in" else NOT_IN, values)
    if match := _EQUALITY.fullmatch(text):
        return NodeSelectorRequirement(match["key"], NOT_IN if match["op"] == "!=" else IN, [match["value"]])
    if match := _NUMBER.fullmatch(text):
        return NodeSelectorRequirement(match["key"], GREATER if match["op"] == ">" else LESS, [match["value"]])
    if match := _EXISTS.fullmatch(text):
        return NodeSelectorRequirement(match["key"], DOES_NOT_EXIST if match["absent"] else EXISTS)
    raise errors.bad_request(f"unable to parse requirement: {text.strip()!r} is not a label selector")


def selects(selector: Mapping[str, object] | None, labels: Labels) -> bool:
    """A LabelSelector as it stands in an object. An absent or empty one selects everything."""
    return not selector or matches(from_plain(selector, LabelSelector), labels)


def parse_fields(text: str, kind: Kind) -> RecordTest:
    """`status.phase=Running,metadata.name!=x` as a test. A field that this kind does not index is a 400."""
    if re.search(r"(?<!\\)(\\\\)*\\($|[^\\,=])", text):
        raise errors.bad_request("invalid field selector: invalid escape sequence")
    tests = [_field(part, kind) for part in text.split(",") if part.strip()]
    return lambda record: all(test(record) for test in tests)


def _field(text: str, kind: Kind) -> RecordTest:
    path, wanted, value = _field_parts(text)
    if path == "metadata.name":
        return lambda record: (record.name == value) is wanted
    if path == "metadata.namespace":
        return lambda record: (record.namespace == value) is wanted
    if path not in kind.fields:
        raise errors.bad_request(_unknown_field(path, kind))
    if kind.custom:
        return lambda record: (field_value(record.object(), path) == value) is wanted
    stored = path if kind.is_stored_form else stored_field(path)
    return lambda record: (record.fields.get(stored, "") == value) is wanted


def _unknown_field(path: str, kind: Kind) -> str:
    """Kinds with fields of their own say it in other words than the rest."""
    if kind.custom or kind.fields:
        return f"field label not supported: {path}"
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _field_parts(text: str) -> tuple[str, bool, str]:
    for operator, wanted in (("!=", False), ("==", True), ("=", True)):
        path, found, value = text.partition(operator)
        if found:
            return path.strip(), wanted, value.strip().replace("\\,", ",").replace("\\=", "=")
    raise errors.bad_request(f"invalid field selector: {text!r}")


def single_name(text: str) -> str:
    """The name that a field selector asks for, so that a list of one object need not look at all."""
    for part in text.split(","):
        path, found, value = part.partition("=")
        if found and path.strip() == "metadata.name":
            return value.strip().removeprefix("=")
    return ""
