"""The base of every API struct, and how they are read and written.

Python names are snake_case, the wire has camelCase; a field that differs names itself (`msgspec.field(name="podIP")`).
Unknown fields are dropped on decode: never send back as a whole what you do not own, send a patch.
"""

from __future__ import annotations

import threading
from typing import Annotated, Any, TypeVar

import msgspec

#: In `Annotated[X, REQUIRED]`: the API wants the field although the struct has a default that is handy in code.
REQUIRED = msgspec.Meta(extra={"required": True})
#: A list of things that a user writes has an end.
SHORT_LIST = msgspec.Meta(extra_json_schema={"maxItems": 256})

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Uint = Annotated[int, msgspec.Meta(ge=0)]
Uint32 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]


class Struct(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A piece of an API object. No cycles, so no need for the garbage collector (half the memory in a cache)."""


#: What reading JSON raises: it does not fit, it is no JSON, no UTF-8, or nested deeper than anybody means.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
# msgspec looks at a class the first time it meets it, and a second thread that comes meanwhile sees it half done and
# crashes the process. So all first looks happen one after the other.
_first_look = threading.Lock()


def decode(data: bytes | str, cls: type[T]) -> T:
    """Reads JSON into a struct. Raises UNREADABLE; the text of a ValidationError carries the path of the field."""
    result: T = (_decoders.get(cls) or _make_decoder(cls)).decode(data)
    return result


def _make_decoder(cls: type[Any]) -> msgspec.json.Decoder[Any]:
    with _first_look:
        if cls not in _decoders:
            _decoders[cls] = msgspec.json.Decoder(cls)
        return _decoders[cls]


def encode(obj: Any) -> bytes:
    return _encoder.encode(obj)


def to_plain(obj: Any) -> Any:
    """The struct as dicts, lists and scalars, as it would stand in JSON."""
    return msgspec.to_builtins(obj)


def from_plain(data: Any, cls: type[T]) -> T:
    if cls not in _decoders:
        _make_decoder(cls)
    return msgspec.convert(data, cls)
