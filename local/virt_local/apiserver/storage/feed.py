"""The recent changes of one resource, and the watchers that follow them.

A watcher gets every change after the revision it names, in order, without a gap: from the history first, then live.
The history is bounded; who asks for older changes is told that they have expired, and lists again. A watcher that does
not read is dropped when its buffer is full, so that it cannot hold memory or anybody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from virt_local.apiserver.storage.record import Record

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Change(msgspec.Struct, frozen=True, gc=False):
    """`old` is the state before; for a deletion `record` is the last state, stamped with the deletion's revision."""

    type: str
    record: Record
    old: Record | None


class Expired(Exception):
    """The asked revision is older than the kept history."""


Filter = Callable[[Change], Change | None]


class Watcher:
    """A bounded buffer between the store and one HTTP response. Lives in the event loop only."""

    def __init__(self, feed: Feed, select: Filter, after: int, limit: int) -> None:
        self._feed = feed
        self._select = select
        self._after = after
        self._limit = limit
        self._buffer: deque[Change] = deque()
        self._wake = asyncio.Event()
        self.closed = False

    def offer(self, change: Change) -> None:
        if self.closed or change.record.revision <= self._after:
            return
        selected = self._select(change)
        if selected is None:
            return
        if len(self._buffer) >= self._limit:
            self.close()
            return
        self._buffer.append(selected)
        self._wake.set()

    async def next_batch(self, timeout_s: float) -> list[Change]:
        """What has happened since the last call; empty after the time-out, or when the watcher was closed."""
        if not self._buffer and not self.closed:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                pass  # What arrived at the last moment is still taken along.
        self._wake.clear()
        batch = list(self._buffer)
        self._buffer.clear()
        return batch

    def close(self) -> None:
        self.closed = True
        self._feed.drop(self)
        self._wake.set()


class Feed:
    """The history of one resource. `floor` is the newest revision whose change is no longer known."""

    def __init__(self, floor: int, history: int) -> None:
        self.floor = floor
        self._history = history
        self._changes: deque[Change] = deque()
        self._watchers: set[Watcher] = set()

    def publish(self, change: Change) -> None:
        self._changes.append(change)
        while len(self._changes) > self._history:
            self.floor = self._changes.popleft().record.revision
        for watcher in tuple(self._watchers):
            watcher.offer(change)

    def watch(self, select: Filter, after: int, limit: int) -> Watcher:
        if after < self.floor:
            raise Expired(f"too old resource version: {after} ({self.floor})")
        watcher = Watcher(self, select, after, limit)
        for change in self._changes:
            watcher.offer(change)
        if not watcher.closed:
            self._watchers.add(watcher)
        return watcher

    def drop(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def close(self) -> None:
        for watcher in tuple(self._watchers):
            watcher.close()

    @property
    def watcher_count(self) -> int:
        return len(self._watchers)
