"""Lists in pieces: the rest of a list that a client fetches page by page.

A page's token names a kept snapshot and a place in it, so that all pages of one list show one moment. A snapshot holds
references to records that exist anyway; it is dropped after some minutes, and its token then answers 410.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from virt_local.apiserver import errors
from virt_local.apiserver.storage.record import Record

_KEPT = 64
_KEPT_FOR_S = 300.0


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

    def resume(self, token: str) -> tuple[str, int, int, list[Record]]:
        """The snapshot's name, the offset to go on from, its revision and its records."""
        self._expire()
        try:
            name, offset = base64.urlsafe_b64decode(token.encode()).decode().split(":")
            start = int(offset)
        except ValueError:
            raise errors.bad_request("the continue token is not one of this server") from None
        found = self._lists.get(name)
        if found is None:
            raise errors.gone("the provided continue parameter is too old to display a consistent list result")
        return name, start, found[1], found[2]

    def _expire(self) -> None:
        limit = self._clock() - _KEPT_FOR_S
        while self._lists and next(iter(self._lists.values()))[0] < limit:
            self._lists.popitem(last=False)


def token(name: str, offset: int) -> str:
    return base64.urlsafe_b64encode(f"{name}:{offset}".encode()).decode()
