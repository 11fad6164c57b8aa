"""The store: all objects in memory, every change on disk before anybody sees it.

One counter numbers all changes (the resourceVersion). A write is checked against memory under a lock of its key, gets
its number, goes to the writer thread, and becomes visible (to readers, watchers and the caller) when the disk has it,
in the order of its number. All methods belong to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from virt_local.apiserver.storage.database import Database, Write
from virt_local.apiserver.storage.feed import ADDED, DELETED, MODIFIED, Change, Feed, Filter, Watcher
from virt_local.apiserver.storage.record import FieldPaths, Key, Object, Record, load_record, make_record

Listener = Callable[[Change], None]

ANY = -1
ABSENT = 0


class Mismatch(Exception):
    """The object is not in the state that the writer expected. `current` is the state it is in."""

    def __init__(self, key: Key, current: Record | None) -> None:
        super().__init__(f"{key} has changed")
        self.current = current


class _Pending:
    """A numbered write on its way to the disk."""

    __slots__ = ("change", "future", "started")

    def __init__(self, change: Change, future: asyncio.Future[Record]) -> None:
        self.change = change
        self.future = future
        self.started = time.monotonic()


class Store:
    """Open it, `start` it in the event loop, `close` it at the end."""

    def __init__(
        self, path: Path, *, field_paths: FieldPaths | None = None, history: int = 2000, watch_buffer: int = 4000
    ) -> None:
        self._database = Database(path)
        self._field_paths = field_paths or {}
        self._history = history
        self._watch_buffer = watch_buffer
        self._objects: dict[str, dict[tuple[str, str], Record]] = {}
        self._feeds: dict[str, Feed] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self._locks: dict[Key, tuple[asyncio.Lock, int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._load()
        self.revision = self._numbered = self._first = self._database.revision()
        self.on_commit: Callable[[int, float], None] | None = None

    def _load(self) -> None:
        for resource, revision, data in self._database.load():
            record = load_record(resource, data, revision, self._field_paths)
            self._objects.setdefault(resource, {})[record.namespace, record.name] = record

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._database.start(self._committed)

    async def close(self) -> None:
        """Lets queued writes finish, ends every watch, closes the file."""
        await asyncio.to_thread(self._database.close)
        self.end_watches()

    def end_watches(self) -> None:
        for feed in self._feeds.values():
            feed.close()

    # Reading.

    def get(self, resource: str, namespace: str, name: str) -> Record | None:
        return self._objects.get(resource, {}).get((namespace, name))

    def list(self, resource: str, namespace: str = "") -> list[Record]:
        """A consistent snapshot, ordered by namespace and name. No namespace means all of them."""
        found = self._objects.get(resource, {})
        keys = sorted(key for key in found if not namespace or key[0] == namespace)
        return [found[key] for key in keys]

    def count(self, resource: str) -> int:
        return len(self._objects.get(resource, {}))

    def resources(self) -> dict[str, int]:
        return {resource: len(found) for resource, found in self._objects.items()}

    def watch(self, resource: str, select: Filter, after: int) -> Watcher:
        """Follows the changes after a revision. Raises Expired when that revision is too old."""
        return self._feed(resource).watch(select, after, self._watch_buffer)

    def subscribe(self, resource: str, listener: Listener) -> None:
        """Calls back in the event loop for each change, before the writer gets its answer. It must not block.

        `*` follows every resource.
        """
        self._listeners.setdefault(resource, []).append(listener)

    def watcher_count(self) -> int:
        return sum(feed.watcher_count for feed in self._feeds.values())

    # Writing.

    async def put(self, resource: str, obj: Object, *, expect: int = ANY) -> Record:
        """Stores an object under its metadata's namespace and name.

        `expect` is the revision it must have now, ABSENT when it must not exist, ANY to overwrite. Raises Mismatch.
        """
        metadata = obj["metadata"]
        key = (resource, metadata.get("namespace", ""), metadata["name"])
        return await self._finish(self._put(key, obj, expect))

    async def delete(self, resource: str, namespace: str, name: str, *, expect: int = ANY) -> Record:
        """Removes an object and returns its last state. Raises Mismatch, also when there is none."""
        return await self._finish(self._delete((resource, namespace, name), expect))

    async def _finish(self, work: Coroutine[Any, Any, Record]) -> Record:
        """A caller that goes away must not release the key's lock while its write is under way."""
        return await asyncio.shield(asyncio.ensure_future(work))

    async def _put(self, key: Key, obj: Object, expect: int) -> Record:
        async with self._locked(key):
            current = self._check(key, expect)
            record = make_record(key[0], obj, self._next(), self._field_paths)
            change = Change(type=MODIFIED if current else ADDED, record=record, old=current)
            return await self._submit(change, record.raw)

    async def _delete(self, key: Key, expect: int) -> Record:
        async with self._locked(key):
            current = self._check(key, expect)
            if current is None:
                raise Mismatch(key, None)
            record = make_record(key[0], current.object(), self._next(), self._field_paths)
            return await self._submit(Change(type=DELETED, record=record, old=current), None)

    def _check(self, key: Key, expect: int) -> Record | None:
        current = self.get(*key)
        if expect not in (ANY, current.revision if current else ABSENT):
            raise Mismatch(key, current)
        return current

    def _next(self) -> int:
        self._numbered += 1
        return self._numbered

    async def _submit(self, change: Change, data: bytes | None) -> Record:
        if self._loop is None:
            raise RuntimeError("the store has not been started")
        pending = _Pending(change, self._loop.create_future())
        self._database.submit(Write(change.record.key, change.record.revision, data, pending))
        return await pending.future

    def _committed(self, batch: Sequence[Write], error: Exception | None) -> None:
        """Runs in the writer thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._apply, [cast(_Pending, write.token) for write in batch], error)

    def _apply(self, batch: Sequence[_Pending], error: Exception | None) -> None:
        for pending in batch:
            if error is None:
                self._make_visible(pending.change)
            if self.on_commit is not None:
                self.on_commit(len(batch), time.monotonic() - pending.started)
            if not pending.future.done():
                if error is None:
                    pending.future.set_result(pending.change.record)
                else:
                    pending.future.set_exception(error)

    def _make_visible(self, change: Change) -> None:
        record = change.record
        self.revision = record.revision
        objects = self._objects.setdefault(record.resource, {})
        if change.type == DELETED:
            objects.pop((record.namespace, record.name), None)
        else:
            objects[record.namespace, record.name] = record
        for listener in (*self._listeners.get(record.resource, ()), *self._listeners.get("*", ())):
            listener(change)
        self._feed(record.resource).publish(change)

    def _feed(self, resource: str) -> Feed:
        feed = self._feeds.get(resource)
        if feed is None:
            feed = self._feeds[resource] = Feed(self._first, self._history)
        return feed

    @asynccontextmanager
    async def _locked(self, key: Key) -> AsyncIterator[None]:
        """One writer for each key at a time; the lock goes away with its last user."""
        lock, users = self._locks.get(key, (None, 0))
        lock = lock or asyncio.Lock()
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)
