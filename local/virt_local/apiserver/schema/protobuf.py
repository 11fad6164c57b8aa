"""Reads the protobuf bodies that typed clients send for built-in kinds (`kubectl create configmap` is one).

The envelope is four magic bytes and a message with the type and the object's own bytes. The field numbers stand in the
table beside this file, made by hack/generate_protobuf_table.py. protobuf_write.py is the other way.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

MAGIC = b"k8s\x00"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GROUPS = {
    "": "core",
    "rbac.authorization.k8s.io": "rbac",
    "authentication.k8s.io": "authentication",
    "authorization.k8s.io": "authorization",
    "coordination.k8s.io": "coordination",
    "events.k8s.io": "events",
    "scheduling.k8s.io": "scheduling",
    "storage.k8s.io": "storage",
    "discovery.k8s.io": "discovery",
}


class BadProtobuf(ValueError):
    """The bytes are not a message that we can read."""


class _Field(NamedTuple):
    name: str
    code: str
    inline: bool


Messages = dict[str, dict[int, _Field]]


@cache
def messages() -> Messages:
    return parse_messages((resources.files(__package__) / "protobuf_fields.txt").read_text())


def parse_messages(text: str) -> Messages:
    """One line is one message: `NAME field=NUMBER:TYPE …`."""
    table: Messages = {}
    for line in text.splitlines():
        message, *fields = line.split(" ")
        table[message] = dict(_field(field) for field in fields)
    return table


def message_name(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{_GROUPS.get(group, group)}/{version}.{kind}"


def _field(text: str) -> tuple[int, _Field]:
    name, _, rest = text.partition("=")
    number, _, code = rest.partition(":")
    return int(number), _Field(name.rstrip("^"), code, name.endswith("^"))


def decode(body: bytes) -> dict[str, Any]:
    """An object as its JSON form would be. Raises BadProtobuf."""
    try:
        return _decode(body)
    except (TypeError, AttributeError, ValueError, OverflowError, OSError, RecursionError) as error:
        # A number where a message should be, a time beyond all times: what a field holds is told by its sender.
        raise (
            error if isinstance(error, BadProtobuf) else BadProtobuf(f"a field holds something else: {error}")
        ) from None


def _decode(body: bytes) -> dict[str, Any]:
    if not body.startswith(MAGIC):
        raise BadProtobuf("the body does not start with the magic bytes of Kubernetes' protobuf form")
    envelope = dict(_parts(body[len(MAGIC) :]))
    identity = {number: _text(value) for number, value in _parts(envelope.get(1, b""))}
    api_version, kind = identity.get(1, ""), identity.get(2, "")
    message = "meta/v1.DeleteOptions" if kind == "DeleteOptions" else message_name(api_version, kind)
    if message not in messages():
        raise BadProtobuf(f"{kind} in version {api_version!r} is only read as JSON or YAML here")
    return {"apiVersion": api_version, "kind": kind, **_message(message, envelope.get(2, b""))}


def _parts(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and raw values, in order."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
        elif wire == _BYTES:
            size, position = _varint(data, position)
            if position + size > len(data):
                raise BadProtobuf("a field is longer than its message")
            yield number, data[position : position + size]
            position += size
        elif wire in (_FIXED64, _FIXED32):
            position += 8 if wire == _FIXED64 else 4
        else:
            raise BadProtobuf(f"unknown wire type {wire}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise BadProtobuf("a number is cut off")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def _message(name: str, data: bytes) -> dict[str, Any]:
    fields, result = messages()[name], dict[str, Any]()
    for number, raw in _parts(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.inline:
            result |= _message(field.code, raw)
        elif field.code.startswith("[]"):
            result.setdefault(field.name, []).append(_value(field.code[2:], raw))
        elif field.code.startswith("{}"):
            entry = dict(_parts(raw))
            result.setdefault(field.name, {})[_text(entry.get(1, b""))] = _value(field.code[2:], entry.get(2, b""))
        else:
            value = _value(field.code, raw)
            # Go clients write every scalar, set or not; unset ones must not look like a choice.
            if value not in ("", None):
                result[field.name] = value
    return {key: value for key, value in result.items() if value != {} or key in ("emptyDir", "spec", "status")}


def _value(code: str, raw: Any) -> Any:
    special = _SPECIAL.get(code)
    if special is not None:
        return special(raw)
    return _message(code, raw)


def _text(raw: Any) -> str:
    try:
        return bytes(raw).decode() if isinstance(raw, bytes) else str(raw)
    except UnicodeDecodeError:
        raise BadProtobuf("a text is not UTF-8") from None


def _int(raw: Any) -> int:
    number = int(raw)
    return number - (1 << 64) if number >= 1 << 63 else number


def _time(raw: bytes) -> str | None:
    parts = dict(_parts(raw))
    if not parts.get(1):
        return None
    moment = datetime.fromtimestamp(_int(parts[1]), UTC)
    nanos = _int(parts.get(2, 0))
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{nanos // 1000:06d}Z" if nanos else f"{text}Z"


def _int_or_string(raw: bytes) -> Any:
    parts = dict(_parts(raw))
    return _text(parts.get(3, b"")) if parts.get(1) else _int(parts.get(2, 0))


def _json(raw: bytes) -> Any:
    inner = dict(_parts(raw)).get(1, b"")
    try:
        return msgspec.json.decode(inner) if inner else None
    except msgspec.DecodeError:
        raise BadProtobuf("an embedded object is not JSON") from None


def _items(raw: bytes) -> list[str]:
    return [_text(value) for number, value in _parts(raw) if number == 1]


_SPECIAL: dict[str, Any] = {
    "string": _text,
    "int32": _int,
    "int64": _int,
    "bool": bool,
    "bytes": lambda raw: base64.b64encode(raw).decode(),
    "meta/v1.Time": _time,
    "meta/v1.MicroTime": _time,
    "meta/v1.Verbs": _items,
    "meta/v1.FieldsV1": _json,
    "runtime.RawExtension": _json,
    "resource.Quantity": lambda raw: _text(dict(_parts(raw)).get(1, b"")),
    "intstr.IntOrString": _int_or_string,
    "authorization/v1.ExtraValue": _items,
    "authentication/v1.ExtraValue": _items,
}
