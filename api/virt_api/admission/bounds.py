"""How large an object may be before anybody looks at it closely.

Every rule is at most linear, so with these bounds a review takes milliseconds. What no machine has is refused by name:
the longest list is what its author has to look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from virt_api.admission.causes import Cause, Denied, Refused, invalid
from virt_core.apis.base import UNREADABLE

#: Entries of one list or map, where the schema says nothing less.
MAX_ENTRIES = 500
#: Values of a whole object, each entry and each member counted.
MAX_VALUES = 20_000
#: Mistakes of form that are looked for; the rest mostly follow from the first.
MAX_MISTAKES = 100
#: Written by the API server, not by the user, and nobody here reads it.
_UNREAD = "managedFields"


def too_long(path: str, entries: int, limit: int = MAX_ENTRIES) -> Cause:
    return invalid(path, f"has {entries} entries; at most {limit} can be given")


def check(raw: msgspec.Raw) -> None:
    """Cheap for what is small, as nearly everything is. Raises Refused."""
    text = bytes(raw)
    # No object has more values than this; texts may hold such characters too, so it only says whether to count.
    if text.count(b",") + text.count(b"{") + text.count(b"[") > MAX_VALUES:
        _count(decoded(raw))


def decoded(raw: msgspec.Raw) -> Any:
    """The object as plain JSON; None when there is none. Raises Denied."""
    try:
        return msgspec.json.decode(raw) if bytes(raw) else None
    except UNREADABLE as error:
        raise Denied(f"the object cannot be read: {error}") from error


def _count(document: Any) -> None:
    """Ends when the bound is reached, however much follows."""
    values, longest = 0, ("", 0)
    for path, node in _containers(document):
        values += len(node)
        longest = max(longest, (path, len(node)), key=lambda found: found[1])
        if values > MAX_VALUES:
            raise Refused([_too_many(*longest)])


def _too_many(path: str, entries: int) -> Cause:
    if entries > MAX_ENTRIES:
        return too_long(path, entries)
    return invalid(path.partition(".")[0], f"the object has more than {MAX_VALUES} values")


def _containers(document: Any) -> Iterator[tuple[str, Any]]:
    """All lists and maps, the outer ones first."""
    waiting: list[tuple[str, Any]] = [("", document)]
    for path, node in waiting:  # Grows while we go.
        if isinstance(node, dict):
            yield path, node
            inner = ((f"{path}.{key}" if path else key, value) for key, value in node.items() if key != _UNREAD)
        elif isinstance(node, list):
            yield path, node
            inner = ((f"{path}[{i}]", value) for i, value in enumerate(node))
        else:
            continue
        waiting.extend((at, value) for at, value in inner if isinstance(value, dict | list) and value)
