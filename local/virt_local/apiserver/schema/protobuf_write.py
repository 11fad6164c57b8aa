"""Writes built-in objects, their lists and failures as protobuf, for clients that take nothing else.

The field numbers are those by which protobuf.py reads; the few messages that only answers have stand here.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from virt_local.apiserver.schema import protobuf
from virt_local.apiserver.schema.protobuf import MAGIC, parse_messages

Object = dict[str, Any]

_VARINT, _BYTES = 0, 2
_ANSWERS = """\
meta/v1.ListMeta selfLink=1:string resourceVersion=2:string continue=3:string remainingItemCount=4:int64
meta/v1.StatusCause reason=1:string message=2:string field=3:string
meta/v1.StatusDetails name=1:string group=2:string kind=3:string causes=4:[]meta/v1.StatusCause \
retryAfterSeconds=5:int32 uid=6:string
meta/v1.Status metadata=1:meta/v1.ListMeta status=2:string message=3:string reason=4:string \
details=5:meta/v1.StatusDetails code=6:int32
"""


@cache
def _messages() -> dict[str, dict[int, Any]]:
    return {**protobuf.messages(), **parse_messages(_ANSWERS)}


def is_known(obj: Object) -> bool:
    return _name(obj) in _messages() or _is_list(obj)


def encode(obj: Object) -> bytes:
    """An object, a list of objects or a Status, in the envelope. Call it for known ones only."""
    kind = _field(1, _BYTES, obj.get("apiVersion", "").encode()) + _field(2, _BYTES, obj.get("kind", "").encode())
    raw = _list(obj) if _is_list(obj) else _message(_name(obj), obj)
    # An encoding and a content type follow in the envelope; both are empty.
    return MAGIC + _field(1, _BYTES, kind) + _field(2, _BYTES, raw) + _field(3, _BYTES, b"") + _field(4, _BYTES, b"")


def _name(obj: Object, suffix: str = "") -> str:
    kind = str(obj.get("kind", "")).removesuffix(suffix)
    if kind == "Status":
        return "meta/v1.Status"
    return protobuf.message_name(str(obj.get("apiVersion", "")), kind)


def _is_list(obj: Object) -> bool:
    return "items" in obj and _name(obj, "List") in _messages()


def _list(obj: Object) -> bytes:
    item = _name(obj, "List")
    parts = [_field(1, _BYTES, _message("meta/v1.ListMeta", obj.get("metadata") or {}))]
    return b"".join([*parts, *(_field(2, _BYTES, _message(item, each)) for each in obj["items"])])


def _message(name: str, obj: Object) -> bytes:
    return b"".join(part for number, field in sorted(_messages()[name].items()) for part in _parts(number, field, obj))


def _parts(number: int, field: Any, obj: Object) -> Iterator[bytes]:
    if field.inline:
        inner = _message(field.code, obj)
        if inner:
            yield _field(number, _BYTES, inner)
        return
    value = obj.get(field.name)
    if value is None:
        return
    if field.code.startswith("[]"):
        yield from (_value(number, field.code[2:], item) for item in value)
    elif field.code.startswith("{}"):
        for key, item in value.items():
            yield _field(number, _BYTES, _field(1, _BYTES, key.encode()) + _value(2, field.code[2:], item))
    else:
        yield _value(number, field.code, value)


def _value(number: int, code: str, value: Any) -> bytes:
    if code in ("int32", "int64", "bool"):
        return _field(number, _VARINT, int(value))
    special = _SPECIAL.get(code)
    return _field(number, _BYTES, special(value) if special is not None else _message(code, value))


def _field(number: int, wire: int, value: Any) -> bytes:
    tag = _varint(number << 3 | wire)
    return tag + _varint(value) if wire == _VARINT else tag + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def _time(text: str) -> bytes:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
    seconds = _field(1, _VARINT, int(moment.timestamp()))
    return seconds + _field(2, _VARINT, moment.microsecond * 1000)


def _int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return _field(1, _VARINT, 1) + _field(2, _VARINT, 0) + _field(3, _BYTES, value.encode())
    return _field(1, _VARINT, 0) + _field(2, _VARINT, int(value)) + _field(3, _BYTES, b"")


def _raw(value: Any) -> bytes:
    return _field(1, _BYTES, msgspec.json.encode(value))


def _items(values: list[str]) -> bytes:
    return b"".join(_field(1, _BYTES, value.encode()) for value in values)


_SPECIAL: dict[str, Callable[[Any], bytes]] = {
    "string": lambda value: str(value).encode(),
    "bytes": base64.b64decode,
    "meta/v1.Time": _time,
    "meta/v1.MicroTime": _time,
    "meta/v1.Verbs": _items,
    "meta/v1.FieldsV1": _raw,
    "runtime.RawExtension": _raw,
    "resource.Quantity": lambda value: _field(1, _BYTES, str(value).encode()),
    "intstr.IntOrString": _int_or_string,
    "authorization/v1.ExtraValue": _items,
    "authentication/v1.ExtraValue": _items,
}
