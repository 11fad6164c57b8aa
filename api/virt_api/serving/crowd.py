"""Everybody who is connected, and who has to go when there is no more room. Pure.

Nobody is turned away while somebody else keeps a place without using it. Who goes first: one that has not shown who it
is, of the address that takes the most, the oldest. So an honest newcomer has as long as the crowd needs to fill the
whole port anew, and the API server's connections, which have shown what they are, stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import Protocol

from virt_api.serving.limits import Limits


class Rank(IntEnum):
    """What a connection has shown of itself."""

    STRANGER = 0
    #: Has a valid token, or had a review answered.
    KNOWN = 1
    #: The API server.
    TRUSTED = 2


class Guest(Protocol):
    """A connection."""

    address: str
    rank: Rank
    #: Since when it is in its present state.
    since: float
    #: When that has lasted too long.
    deadline: float
    #: Bytes of its unanswered request.
    held: int

    def is_waiting(self) -> bool:
        """It is for the other side to do something; no work of ours is lost with it."""

    def show_out(self) -> None:
        """Ends the connection; it leaves the crowd by `remove`, now or in a moment."""


class Crowd:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._guests: dict[Guest, None] = {}
        self._places: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self.held = 0

    def __len__(self) -> int:
        return len(self._guests)

    def make_room(self, address: str) -> bool:
        """For one more from this address. False: there is none."""
        if self._places[address] >= self.limits.per_address:
            return self._show_out_one(guest for guest in self._guests if guest.address == address)
        return len(self._guests) < self.limits.connections or self._show_out_one(self._guests)

    def add(self, guest: Guest) -> None:
        self._guests[guest] = None
        self._places[guest.address] += 1

    def remove(self, guest: Guest) -> None:
        if guest not in self._guests:
            return
        self.release(guest)
        del self._guests[guest]
        _less(self._places, guest.address, 1)

    def hold(self, guest: Guest, count: int) -> None:
        """So many more bytes of its request. Others go until all fit; if nobody can go, this one does."""
        guest.held += count
        self._held[guest.address] += count
        self.held += count
        while self.held > self.limits.held_bytes:
            holders = (other for other in self._guests if other.held and other is not guest)
            if not self._show_out_one(holders):
                self._end(guest)
                return

    def release(self, guest: Guest) -> None:
        """Its request is answered."""
        self.held -= guest.held
        _less(self._held, guest.address, guest.held)
        guest.held = 0

    def overdue(self, now: float) -> list[Guest]:
        return [guest for guest in self._guests if guest.deadline <= now]

    def _show_out_one(self, guests: Iterable[Guest]) -> bool:
        waiting = [guest for guest in guests if guest.is_waiting()]
        if not waiting:
            return False
        self._end(min(waiting, key=self._order))
        return True

    def _order(self, guest: Guest) -> tuple[int, int, int, float]:
        return guest.rank, -self._held[guest.address], -self._places[guest.address], guest.since

    def _end(self, guest: Guest) -> None:
        self.remove(guest)
        guest.show_out()


def _less(counts: Counter[str], address: str, by: int) -> None:
    counts[address] -= by
    if not counts[address]:
        del counts[address]
