"""Volumes in use are not deleted: a claim stays while a Pod uses it, a volume while it is bound to a claim.

Each carries a finalizer from its creation. When its deletion is asked for, this task takes the finalizer away as soon
as nobody uses the object any more. It runs beside the store, where every change is known at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from virt_local.apiserver.builtins.strategy import PV_PROTECTION, PVC_PROTECTION, is_removable
from virt_local.apiserver.storage import Change, Mismatch, Record

if TYPE_CHECKING:
    from virt_local.apiserver.server import Server

Object = dict[str, Any]

_RETRY_S = 0.5
_FINISHED = ("Succeeded", "Failed")


class VolumeProtection:
    """`attach` before the server serves, then `run` until cancelled."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._work = asyncio.Event()

    def attach(self) -> None:
        for resource in ("persistentvolumeclaims", "persistentvolumes", "pods"):
            self._server.store.subscribe(resource, self._changed)
        self._work.set()

    def _changed(self, _change: Change) -> None:
        self._work.set()

    async def run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            for record in self._waiting():
                try:
                    await self._release(record)
                except Mismatch:
                    asyncio.get_running_loop().call_later(_RETRY_S, self._work.set)

    def _waiting(self) -> Iterator[Record]:
        """Objects that are to go and that only we still hold, or could."""
        store = self._server.store
        for resource, finalizer in (("persistentvolumeclaims", PVC_PROTECTION), ("persistentvolumes", PV_PROTECTION)):
            for record in store.list(resource):
                if b"deletionTimestamp" in record.raw and finalizer.encode() in record.raw:
                    yield record

    async def _release(self, record: Record) -> None:
        obj = record.object()
        is_claim = record.resource == "persistentvolumeclaims"
        if self._claim_in_use(record) if is_claim else (obj.get("status") or {}).get("phase") == "Bound":
            return
        ours = PVC_PROTECTION if is_claim else PV_PROTECTION
        left = [name for name in obj["metadata"].get("finalizers") or [] if name != ours]
        if left:
            obj["metadata"]["finalizers"] = left
        else:
            obj["metadata"].pop("finalizers", None)
        await self._write(record, obj)

    async def _write(self, record: Record, obj: Object) -> None:
        store, kind = self._server.store, self._server.catalog.stored(record.resource)
        if kind is not None and is_removable(kind, obj):
            await store.delete(record.resource, record.namespace, record.name, expect=record.revision)
        else:
            await store.put(record.resource, obj, expect=record.revision)

    def _claim_in_use(self, claim: Record) -> bool:
        for pod in self._server.store.list("pods", claim.namespace):
            if pod.fields.get("status.phase") not in _FINISHED and claim.name in _claims(pod.object()):
                return True
        return False


def _claims(pod: Object) -> set[str]:
    volumes = pod["spec"].get("volumes") or ()
    return {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if volume.get("persistentVolumeClaim")}
