"""What a controller has just asked for and not yet seen in its informer.

Without it, a controller that creates a Pod and is called again before the Pod shows up in its cache creates a second
one. An expectation ends when the informer delivers, or after five minutes: a lost event must not block an object for
ever.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from virt_core.runtime.clock import Clock, SystemClock

TIMEOUT_S = 300.0


@dataclass(slots=True)
class _Expected:
    since: float
    creations: int = 0
    created: set[str] = field(default_factory=set)
    deletions: set[str] = field(default_factory=set)


class Expectations:
    """Keyed by the owner's key (`namespace/name`). Announce before the call, take back when the call fails."""

    def __init__(self, clock: Clock | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._expected: dict[str, _Expected] = {}

    def expect_creations(self, key: str, count: int = 1) -> None:
        with self._lock:
            self._entry(key).creations += count

    def creation_observed(self, key: str) -> None:
        """The informer showed the object, or its creation failed and it will never come."""
        with self._lock:
            entry = self._expected.get(key)
            if entry is not None:
                entry.creations = max(entry.creations - 1, 0)
                self._drop_if_empty(key, entry)

    def expect_created(self, key: str, uid: str) -> None:
        """The same for an object that was made already, by its UID: no other that appears is taken for it."""
        with self._lock:
            self._entry(key).created.add(uid)

    def created_observed(self, key: str, uid: str) -> None:
        with self._lock:
            entry = self._expected.get(key)
            if entry is not None:
                entry.created.discard(uid)
                self._drop_if_empty(key, entry)

    def expect_deletions(self, key: str, uids: Iterable[str]) -> None:
        with self._lock:
            self._entry(key).deletions.update(uids)

    def deletion_observed(self, key: str, uid: str) -> None:
        with self._lock:
            entry = self._expected.get(key)
            if entry is not None:
                entry.deletions.discard(uid)
                self._drop_if_empty(key, entry)

    def satisfied(self, key: str) -> bool:
        """True: the cache shows all our own writes (or they are overdue), so it is safe to decide on it."""
        with self._lock:
            entry = self._expected.get(key)
            if entry is None:
                return True
            return self._clock.monotonic() - entry.since > self._timeout_s

    def forget(self, key: str) -> None:
        """The owner is gone."""
        with self._lock:
            self._expected.pop(key, None)

    def _entry(self, key: str) -> _Expected:
        now = self._clock.monotonic()
        entry = self._expected.get(key)
        if entry is None or now - entry.since > self._timeout_s:
            entry = self._expected[key] = _Expected(now)
        entry.since = now
        return entry

    def _drop_if_empty(self, key: str, entry: _Expected) -> None:
        if not entry.creations and not entry.created and not entry.deletions:
            del self._expected[key]
