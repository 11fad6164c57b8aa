"""How many uploads run at once: so many in all, and of one namespace only a part of them. Lives in the event loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from virt_api.problems import Problem
from virt_core.runtime.metrics import Gauge

UPLOADS = Gauge("virt_api_uploads", "Disks that are being sent at this moment.")
_IN_ALL, _OF_ONE = 64, 16


class Places:
    def __init__(self, in_all: int = _IN_ALL, of_one: int = _OF_ONE) -> None:
        self._in_all, self._of_one = in_all, of_one
        self._taken: Counter[str] = Counter()
        self._claims: set[str] = set()

    @contextmanager
    def one(self, namespace: str, claim_uid: str) -> Iterator[None]:
        """Raises Problem 409, 503."""
        if claim_uid in self._claims:
            raise Problem(503, "somebody else is sending a disk for this claim")
        if self._taken.total() >= self._in_all or self._taken[namespace] >= self._of_one:
            raise Problem(503, "too many disks are being sent at this moment; try again later")
        self._claims.add(claim_uid)
        self._taken[namespace] += 1
        UPLOADS.set(self._taken.total())
        try:
            yield
        finally:
            self._claims.discard(claim_uid)
            self._taken[namespace] -= 1
            self._taken += Counter()  # Forgets who has none.
            UPLOADS.set(self._taken.total())
