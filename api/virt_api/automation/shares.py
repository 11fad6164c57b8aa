"""How many calls there may be at once, in all and of one: nobody gets so many that others get none.

Whoever shows no token yet is counted by address, and only for as long as the token is looked at; whoever has shown one,
by user. Health needs no token and so has places of its own, which take nothing from anybody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

import grpc

from virt_api.automation.failures import Failure


@dataclass(frozen=True, slots=True)
class Share:
    """Places for calls of one kind: so many in all, and for each who asks."""

    total: int
    each: int
    of: str


HEALTH_CHECKS = Share(256, 32, "health checks")
HEALTH_WATCHES = Share(64, 16, "health streams")
NEWCOMERS = Share(256, 64, "calls whose token is being checked")
CALLERS = Share(512, 128, "calls")


@dataclass(slots=True)
class Places:
    """Who has how many places of a share. Lives in the event loop."""

    share: Share
    _taken: Counter[str] = field(default_factory=Counter)
    _all: int = 0

    @contextmanager
    def one(self, who: str) -> Iterator[None]:
        """Raises Failure when there is none left for them."""
        if self._taken[who] >= self.share.each:
            raise _exhausted(f"{who} has {self.share.each} {self.share.of} under way, and may have no more")
        if self._all >= self.share.total:
            raise _exhausted(f"there are {self.share.total} {self.share.of} under way, and there may be no more")
        self._taken[who] += 1
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1
            self._taken[who] -= 1
            if not self._taken[who]:
                del self._taken[who]


def _exhausted(message: str) -> Failure:
    return Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def address_of(peer: str) -> str:
    """Of what gRPC says about the other end, such as `ipv4:10.1.2.3:4567`: without the port."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]") or peer
