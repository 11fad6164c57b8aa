"""JSON patch (RFC 6902), as the library does it that Kubernetes uses. Pure."""

from __future__ import annotations

import copy
import sys
from typing import Any

import msgspec

_MAX_OPERATIONS = 10_000
#: What all copies of a patch may add together, as JSON: each copy can double what the one before it made.
_MAX_COPIED_BYTES = 3 << 20
_MAX_INDEX_DIGITS = 9
_MISSING: Any = object()


class PatchError(Exception):
    """An operation that cannot be done, or a test that fails."""


class PatchShapeError(Exception):
    """It is no JSON patch, or one that asks for too much."""


def apply_patch(document: Any, operations: Any) -> Any:
    """A patched copy. Raises PatchError, PatchShapeError."""
    if not isinstance(operations, list):
        raise PatchShapeError("a JSON patch is a list of operations")
    if len(operations) > _MAX_OPERATIONS:
        raise PatchShapeError(f"a JSON patch has at most {_MAX_OPERATIONS} operations")
    document = copy.deepcopy(document)
    copied = 0
    for operation in operations:
        copied += _copied_bytes(document, operation)
        if copied > _MAX_COPIED_BYTES:
            raise PatchShapeError(f"the copies of a JSON patch have at most {_MAX_COPIED_BYTES} bytes together")
        document = _apply(document, operation)
    return document


def _copied_bytes(document: Any, operation: Any) -> int:
    """What a copy adds; nothing for everything else, and for a copy that cannot be done."""
    if not isinstance(operation, dict) or operation.get("op") != "copy":
        return 0
    return len(msgspec.json.encode(_get(document, str(operation.get("from", "")))))


def _apply(document: Any, operation: Any) -> Any:
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        raise PatchError("an operation of a JSON patch needs op and path")
    op, path = operation.get("op"), operation["path"]
    if op in ("add", "replace", "test") and "value" not in operation:
        raise PatchError(f"{op} operation on {path} has no value")
    if op == "test":
        return _test(document, path, operation["value"])
    if op == "add":
        return _add(document, path, copy.deepcopy(operation["value"]))
    if op == "replace":
        return _replace(document, path, copy.deepcopy(operation["value"]))
    if op == "remove":
        return _remove(document, path)
    if op in ("move", "copy"):
        source = str(operation.get("from", ""))
        value = copy.deepcopy(_get(document, source))
        return _add(_remove(document, source) if op == "move" else document, path, value)
    raise PatchError(f"unknown JSON patch operation: {op!r}")


def _tokens(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise PatchError(f"the path {path!r} does not start with '/'")
    return [token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/")]


def _index(token: str) -> int:
    """The place in a list that a token names; beyond any list for what is no number."""
    return int(token) if token.isascii() and token.isdigit() and len(token) <= _MAX_INDEX_DIGITS else sys.maxsize


def _step(value: Any, token: str) -> Any:
    if isinstance(value, dict):
        return value.get(token, _MISSING)
    if isinstance(value, list) and _index(token) < len(value):
        return value[_index(token)]
    return _MISSING


def _get(document: Any, path: str) -> Any:
    value = document
    for token in _tokens(path):
        value = _step(value, token)
        if value is _MISSING:
            raise PatchError(f"the path {path} does not exist")
    return value


def _parent(document: Any, path: str) -> tuple[Any, str]:
    if not path:
        raise PatchError("the whole document cannot be taken away")
    *heads, last = _tokens(path)
    value = document
    for token in heads:
        value = _step(value, token)
    if not isinstance(value, dict | list):
        raise PatchError(f"the path {path} does not exist")
    return value, last


def _test(document: Any, path: str, expected: Any) -> Any:
    value = document
    for token in _tokens(path):
        value = _step(value, token)
        if value is _MISSING:
            break
    # A field that is not there equals null, as in the library that Kubernetes uses.
    actual = None if value is _MISSING else value
    if actual != expected or isinstance(actual, bool) != isinstance(expected, bool):
        raise PatchError(f"testing value {path} failed")
    return document


def _add(document: Any, path: str, value: Any) -> Any:
    if path == "":
        return value
    parent, token = _parent(document, path)
    if isinstance(parent, dict):
        parent[token] = value
    elif token == "-":  # noqa: S105 (a place in a path)
        parent.append(value)
    elif _index(token) <= len(parent):
        parent.insert(_index(token), value)
    else:
        raise PatchError(f"the index in {path} is out of bounds")
    return document


def _replace(document: Any, path: str, value: Any) -> Any:
    if path == "":
        return value
    parent, token = _parent(document, path)
    if isinstance(parent, list):
        _get(document, path)
        parent[_index(token)] = value
    else:
        parent[token] = value  # A field that is not there is added, as by the library that Kubernetes uses.
    return document


def _remove(document: Any, path: str) -> Any:
    _get(document, path)
    parent, token = _parent(document, path)
    del parent[_index(token) if isinstance(parent, list) else token]
    return document
