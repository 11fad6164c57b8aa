"""Strategies: good documents with something wrong in a few places, bytes with noise, protobuf messages."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from fuzz.hostile import NUMBERS, RAW, WORDS, again, raw, text_of
from hypothesis import strategies as st
from msgspec import inspect as types

Path = tuple[Any, ...]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.sampled_from(WORDS),
    st.sampled_from(sorted(RAW)).map(raw),
    st.text(max_size=6),
    st.integers(-(1 << 70), 1 << 70),
)
VALUES = SCALARS | st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)
_INDEX = st.integers(0, 1 << 20)


def places(node: Any, path: Path = ()) -> list[Path]:
    """Every place in a document but the document itself."""
    found = [path] if path else []
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        found += places(child, (*path, key))
    return found


def _at(node: Any, path: Path) -> Any:
    for key in path:
        node = node[key]
    return node


def _graft(node: Any, path: Path, value: Any) -> None:
    """Puts a value where it may never have been: what is missing on the way is made."""
    for key, following in pairwise(path):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(node, list):
            node.extend([empty] if not node else [])
            if not isinstance(node[0], dict | list):
                node[0] = empty
            node = node[0]
        else:
            if not isinstance(node.get(key), dict | list):
                node[key] = empty
            node = node[key]
    if isinstance(node, list):
        node.append(value)
    else:
        node[str(path[-1])] = value


def _edit(draw: st.DrawFn, document: Any, whole: Any) -> None:
    spots = places(document)
    if not spots:
        return
    spot = spots[draw(_INDEX) % len(spots)]
    parent, last = _at(document, spot[:-1]), spot[-1]
    kind = draw(st.sampled_from(("set", "graft", "graft-value", "remove", "move", "repeat", "again")))
    if kind == "set":
        parent[last] = draw(VALUES)
    elif kind in ("graft", "graft-value"):
        known = places(whole) or spots
        path = known[draw(_INDEX) % len(known)]
        value = _at(whole, path) if kind == "graft" and places(whole) else draw(VALUES)
        _graft(document, path, copy.deepcopy(value))
    elif kind == "remove":
        del parent[last]
    elif kind == "move":
        parent[last] = copy.deepcopy(_at(document, spots[draw(_INDEX) % len(spots)]))
    elif kind == "repeat" and isinstance(parent, list):
        parent += [copy.deepcopy(parent[last]) for _ in range(draw(st.sampled_from((1, 2, 40, 300))))]
    elif kind == "again" and isinstance(parent, dict):
        parent[again(str(last))] = draw(VALUES)


@st.composite
def edited(draw: st.DrawFn, documents: Sequence[Any], whole: Any = None, most: int = 4) -> Any:
    """One of the documents with some places changed. `whole` has every field that there is, to take from."""
    document = copy.deepcopy(draw(st.sampled_from(list(documents))))
    for _ in range(draw(st.integers(1, most))):
        _edit(draw, document, whole if whole is not None else document)
    return document


@st.composite
def noisy(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes, cut, doubled, or with a few of them changed."""
    for _ in range(draw(st.integers(1, 4))):
        at, kind = (
            draw(_INDEX) % (len(data) + 1),
            draw(st.sampled_from(("flip", "cut", "insert", "drop", "double", "big"))),
        )
        if kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "insert":
            data = data[:at] + draw(st.binary(max_size=8)) + data[at:]
        elif kind == "drop":
            data = data[:at] + data[at + draw(st.integers(1, 64)) :]
        elif kind == "double":
            data = data[:at] + data[at : at + draw(st.integers(1, 64))] + data[at:]
        elif kind == "big":
            data = (
                data[:at]
                + draw(st.sampled_from((b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"\x80")))
                + data[at + 8 :]
            )
    return data


@st.composite
def maybe_noisy(draw: st.DrawFn, inputs: st.SearchStrategy[bytes]) -> bytes:
    """Now and then with noise on top."""
    data = draw(inputs)
    return draw(noisy(data)) if draw(st.integers(0, 7)) == 7 else data


def json_bytes(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return maybe_noisy(documents.map(lambda document: text_of(document).encode("utf-8", "surrogatepass")))


def whole_document(cls: Any, depth: int = 9) -> Any:
    """A document with every field of a struct in it, one item in each list, each filled with something that fits."""
    return _whole(types.type_info(cls), depth)


def _whole(info: Any, depth: int) -> Any:
    if isinstance(info, types.Metadata):
        return _whole(info.type, depth)
    if isinstance(info, types.UnionType):
        return _whole(next(each for each in info.types if not isinstance(each, types.NoneType)), depth)
    if isinstance(info, types.StructType):
        if depth <= 0:
            return {}
        return {field.encode_name: _whole(field.type, depth - 1) for field in info.fields}
    if isinstance(info, types.ListType | types.VarTupleType):
        return [_whole(info.item_type, depth - 1)]
    if isinstance(info, types.DictType):
        return {"key": _whole(info.value_type, depth - 1)}
    if isinstance(info, types.LiteralType):
        return info.values[0]
    simple = {types.BoolType: True, types.IntType: 1, types.FloatType: 0.5, types.StrType: "a", types.NoneType: None}
    return simple.get(type(info), {} if isinstance(info, types.RawType) else "1")


@st.composite
def messages(draw: st.DrawFn, cls: Any, depth: int = 4) -> Any:
    """A protobuf message of a class, with fields that say too much."""
    message = cls()
    for field in cls.DESCRIPTOR.fields:
        if draw(st.integers(0, 2)) == 0:
            continue
        _fill(draw, message, field, depth)
    return message


def _fill(draw: st.DrawFn, message: Any, field: Any, depth: int) -> None:
    entry = field.message_type
    many = getattr(field, "is_repeated", None)
    if many is None:
        many = field.label == field.LABEL_REPEATED
    count = draw(st.sampled_from((1, 1, 2, 5, 400))) if many else 1
    if entry is not None and entry.GetOptions().map_entry:
        key, value = draw(_TEXTS), draw(_TEXTS)
        getattr(message, field.name).update({f"{number}{key}": value for number in range(count)})
    elif entry is not None and depth > 0:
        one = draw(messages(entry._concrete_class, depth - 1))
        if many:
            getattr(message, field.name).extend([one] * count)
        else:
            getattr(message, field.name).CopyFrom(one)
    elif entry is None:
        value = draw(_of_field(field))
        if many:
            getattr(message, field.name).extend([value] * count)
        else:
            setattr(message, field.name, value)


_TEXTS = st.sampled_from((*WORDS, "a" * 5000, "guest-ping", "RUNNING", "Shutdown", "\ufffd" * 900, "<b>&amp;"))


def _of_field(field: Any) -> st.SearchStrategy[Any]:
    if field.type == field.TYPE_ENUM:
        return st.integers(-1, 12)
    if field.cpp_type == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return st.binary(max_size=40)
        return _TEXTS
    if field.cpp_type == field.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return st.floats()
    bits = 32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    if field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return st.sampled_from((0, 1, 1 << (bits - 1), (1 << bits) - 1)) | st.integers(0, (1 << bits) - 1)
    return st.sampled_from((0, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1)))) | st.integers(-1000, 1 << 30)


def decode_plain(data: bytes) -> Any:
    """JSON as values; None for what is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
