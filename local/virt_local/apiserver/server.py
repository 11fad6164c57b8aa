"""The API server without its HTTP: the store, the served kinds, the hooks, and what must always exist."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from virt_local.apiserver import metrics
from virt_local.apiserver.addresses import Addresses, Ranges
from virt_local.apiserver.builtins.table import field_paths
from virt_local.apiserver.catalog import Catalog
from virt_local.apiserver.crds.kinds import CRDS
from virt_local.apiserver.crds.lifecycle import CrdKeeper, complete_status
from virt_local.apiserver.crds.rules import check_crd
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.hooks import ADMIN, Hooks, User
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.namespaces import SYSTEM_NAMESPACES, complete_namespace, namespace_object
from virt_local.apiserver.request import Target
from virt_local.apiserver.snapshots import Snapshots
from virt_local.apiserver.storage import Record, Store
from virt_local.apiserver.verbs.call import Call
from virt_local.apiserver.verbs.create import create_object

Object = dict[str, Any]


class Server:
    """`open` reads the state, `start` makes it live. Use it from one event loop only."""

    def __init__(
        self,
        store: Store,
        *,
        hooks: Hooks | None = None,
        root_ca: str = "",
        instance: str = "",
        ranges: Ranges | None = None,
    ) -> None:
        self.store = store
        self._addresses = Addresses(store, ranges or Ranges())
        self.instance = instance
        self.hooks = hooks or Hooks()
        self.root_ca = root_ca
        self.catalog = Catalog()
        self.snapshots = Snapshots()
        self.stopping = asyncio.Event()
        self.crds = CrdKeeper(self)

    @classmethod
    def open(cls, path: Path, *, root_ca: str = "", instance: str = "", ranges: Ranges | None = None) -> Server:
        return cls(Store(path, field_paths=field_paths()), root_ca=root_ca, instance=instance, ranges=ranges)

    async def start(self) -> None:
        await self.store.start()
        self.store.on_commit = metrics.observe_commit
        self.crds.start()
        for name in SYSTEM_NAMESPACES:
            await self.ensure(namespace_object(name))
        for record in self.store.list("namespaces"):
            await complete_namespace(self, record.name)

    def stop_watches(self) -> None:
        """Ends every open watch, so that nothing keeps the server from stopping. Clients come back to the next one."""
        self.stopping.set()
        self.store.end_watches()

    async def close(self) -> None:
        self.stop_watches()
        await self.store.close()

    async def ensure(self, obj: Object, user: User = ADMIN) -> Record:
        """Creates an object unless it is there. For what the server itself needs: webhooks are not asked."""
        kind = self.catalog.by_kind(obj.get("apiVersion", ""), obj.get("kind", ""))
        if kind is None:
            raise LookupError(f"{obj.get('apiVersion')} {obj.get('kind')} is not served here")
        metadata = obj["metadata"]
        found = self.store.get(kind.storage, metadata.get("namespace", ""), metadata["name"])
        if found is not None:
            return found
        target = Target("", "create", kind.group, kind.version, kind.plural, metadata.get("namespace", ""))
        call = Call(self, target, kind, user, {"fieldValidation": "Strict"}, by_server=True)
        answer = await create_object(call, obj)
        if answer.record is None:
            raise LookupError(f"{metadata['name']} was not stored")
        return answer.record

    async def after_create(self, kind: Kind, record: Record) -> None:
        """What exists because something else does."""
        if kind.storage == "namespaces":
            await complete_namespace(self, record.name)

    def settled(self, call: Call, obj: Object, old: Object | None) -> AbstractContextManager[list[Cause]]:
        """While a Service is written: the addresses and ports that it got are nobody else's. Others need nothing."""
        if call.kind.storage != "services" or call.subresource:
            return nullcontext([])
        return self._addresses.settle(obj, old)

    def crd_rules(self, kind: Kind, obj: Object, old: Object | None) -> list[Cause]:
        """The rules of CRDs, which need to know the other kinds. A valid one gets its status here."""
        if kind.storage != CRDS:
            return []
        causes = check_crd(obj, old)
        if not causes:
            complete_status(obj, self.catalog)
        return causes

    def count_write(self, kind: Kind, operation: str) -> None:
        metrics.WRITES.inc(kind.storage, operation)
