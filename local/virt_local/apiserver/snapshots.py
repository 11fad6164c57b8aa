"""Lists in pieces: the rest of a list that a client fetches page by page.

A page's token names a kept snapshot and a place in it, so that all pages of one list show one moment. A snapshot holds
references to records that exist anyway; it is dropped after some minutes. Its token then answers 410 with another one,
by which the client may go on at the same place in what is there by then.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from virt_local.apiserver import errors
from virt_local.apiserver.storage.record import Record

_KEPT = 64
_KEPT_FOR_S = 300.0
_NOW = "now"
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. Start a new list without it, or "
    "use the one in this response to go on in what is there now."
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a list goes on: in a kept snapshot at an offset, or, without one, after the last key that was seen."""

    name: str
    offset: int
    last: tuple[str, str]
    revision: int = 0
    records: list[Record] | None = None


class Snapshots:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lists: OrderedDict[str, tuple[float, int, list[Record]]] = OrderedDict()

    def keep(self, records: list[Record], revision: int) -> str:
        """Returns the snapshot's name."""
        self._expire()
        name = secrets.token_hex(8)
        self._lists[name] = (self._clock(), revision, records)
        while len(self._lists) > _KEPT:
            self._lists.popitem(last=False)
        return name

    def resume(self, token: str) -> Place:
        """The place that a token names. Raises 400 for what is none, 410 for one whose snapshot is gone."""
        self._expire()
        try:
            decoded = base64.urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4)).decode()
            name, offset, namespace, last = decoded.split(":")
            place = Place(name, int(offset), (namespace, last))
        except (ValueError, binascii.Error):
            raise errors.bad_request("invalid continue token: it is not one of this server") from None
        if name == _NOW:
            return place
        found = self._lists.get(name)
        if found is None:
            error = errors.gone(_TOO_OLD)
            error.token = _encoded(_NOW, 0, place.last)
            raise error
        return replace(place, revision=found[1], records=found[2])

    def _expire(self) -> None:
        limit = self._clock() - _KEPT_FOR_S
        while self._lists and next(iter(self._lists.values()))[0] < limit:
            self._lists.popitem(last=False)


def token(name: str, offset: int, last: Record) -> str:
    """`last` is the last record that the client has seen."""
    return _encoded(name, offset, (last.namespace, last.name))


def _encoded(name: str, offset: int, last: tuple[str, str]) -> str:
    text = f"{name}:{offset}:{last[0]}:{last[1]}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
