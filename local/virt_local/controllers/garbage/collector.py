"""The collector's loop: follows every change of the store, and carries out what the graph decides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from virt_core.runtime.logs import get_logger
from virt_local.apiserver.storage import Change
from virt_local.apiserver.storage.feed import DELETED
from virt_local.controllers.garbage.graph import Act, Decision, Graph, Item
from virt_local.controllers.garbage.store import RETRIED, Hands, item_of

if TYPE_CHECKING:
    from virt_local.apiserver.server import Server

log = get_logger("virt-local.garbage")

_FIRST_RETRY_S = 0.1
_MAX_RETRY_S = 30.0
#: Kinds that own nothing, are owned by nobody and change all the time.
_IGNORED = frozenset(("events", "events.events.k8s.io"))


class Collector:
    """Belongs to the API server's event loop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._graph = Graph()
        self._hands = Hands(server)
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._failures: dict[str, int] = {}

    def attach(self) -> None:
        """Learns what is there and follows what changes. Call it before the server serves."""
        store = self._server.store
        for storage in store.resources():
            if storage not in _IGNORED:
                for record in store.list(storage):
                    self._add(self._graph.put(item_of(record)))
        for item in list(self._graph.items.values()):
            if item.storage == "namespaces" and item.deleting:
                self._add([item.uid])
        store.subscribe("*", self._on_change)

    async def run(self) -> None:
        while True:
            uid = await self._queue.get()
            self._queued.discard(uid)
            try:
                await self._handle(uid)
            except RETRIED as err:
                self._retry(uid, str(err))
            else:
                self._failures.pop(uid, None)

    async def _handle(self, uid: str) -> None:
        item = self._graph.items.get(uid)
        if item is None:
            return
        if item.storage == "namespaces" and item.deleting:
            await self._empty_namespace(item)
        decision = self._graph.decide(uid)
        if decision.act is not Act.NOTHING:
            await self._carry_out(item, decision)

    async def _carry_out(self, item: Item, decision: Decision) -> None:
        log.debug("collecting", what=f"{item.storage} {item.namespace}/{item.name}", act=decision.act.value)
        if decision.act is Act.DELETE:
            await self._hands.delete(item, decision.policy)
        elif decision.act is Act.DROP_OWNERS:
            await self._hands.drop_owners(item, decision.owners)
        elif decision.act is Act.DROP_FINALIZER:
            await self._hands.drop_finalizer(item, decision.finalizer)
        elif decision.act is Act.RELEASE:
            for uid in decision.dependents:
                dependent = self._graph.items.get(uid)
                if dependent is not None:
                    await self._hands.drop_owners(dependent, frozenset((item.uid,)))
            self._add([item.uid])

    async def _empty_namespace(self, namespace: Item) -> None:
        """Deletes what is in it; when the last object has gone, its deletion brings us here again."""
        left = self._contents(namespace.name)
        for item in left:
            if not item.deleting:
                await self._hands.delete(item, "Background")
        if not self._contents(namespace.name) and not self._events(namespace.name):
            await self._hands.finish_namespace(namespace)
        elif not left:
            await self._delete_events(namespace.name)
            self._add([namespace.uid])

    def _contents(self, namespace: str) -> list[Item]:
        return [item for item in self._graph.items.values() if item.namespace == namespace]

    def _events(self, namespace: str) -> bool:
        return any(self._server.store.list(storage, namespace) for storage in _IGNORED)

    async def _delete_events(self, namespace: str) -> None:
        """Last of all: what is deleted before them still writes some."""
        for storage in _IGNORED:
            for record in self._server.store.list(storage, namespace):
                await self._hands.delete(item_of(record), "Background")

    def _on_change(self, change: Change) -> None:
        record = change.record
        if record.resource in _IGNORED:
            return
        if change.type == DELETED:
            self._add(self._graph.remove(record.uid))
            self._look_at_namespace(record.namespace)
            return
        item = item_of(record)
        self._add(self._graph.put(item))
        if item.storage == "namespaces" and item.deleting:
            self._add([item.uid])

    def _look_at_namespace(self, name: str) -> None:
        record = self._server.store.get("namespaces", "", name) if name else None
        if record is not None and record.fields.get("status.phase") == "Terminating":
            self._add([record.uid])

    def _add(self, uids: list[str]) -> None:
        for uid in uids:
            if uid not in self._queued:
                self._queued.add(uid)
                self._queue.put_nowait(uid)

    def _retry(self, uid: str, why: str) -> None:
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        delay = min(_FIRST_RETRY_S * 2 ** min(failures - 1, 10), _MAX_RETRY_S)
        if failures in (3, 30):
            log.warning("cannot collect an object yet", uid=uid, error=why, failures=failures)
        asyncio.get_running_loop().call_later(delay, self._add, [uid])
