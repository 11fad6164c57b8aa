"""What happens around a CRD: its status, the kinds it serves, and the removal of its objects when it goes."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

from virt_core.runtime.logs import get_logger
from virt_local.apiserver.catalog import Catalog
from virt_local.apiserver.crds.kinds import CRDS, kinds_of
from virt_local.apiserver.meta import finalizers, is_terminating, now_text
from virt_local.apiserver.storage import Change, Mismatch, Record
from virt_local.apiserver.storage.feed import DELETED
from virt_local.apiserver.verbs.delete import CRD_CLEANUP, mark_deleted

if TYPE_CHECKING:
    from virt_local.apiserver.server import Server

log = get_logger("virt-local.apiserver.crds")
Object = dict[str, Any]

_RETRY_S = 1.0


def complete_status(crd: Object, catalog: Catalog) -> None:
    """Names are accepted or not at once: there is one server, so nobody has to be waited for."""
    spec = crd["spec"]
    names = spec["names"]
    wanted = [names[key] for key in ("plural", "singular", "kind", "listKind") if names.get(key)]
    taken = catalog.name_taken(crd["metadata"]["name"], spec["group"], [*wanted, *(names.get("shortNames") or ())])
    status = crd["status"] = copy.deepcopy(crd.get("status") or {})
    conditions = status.setdefault("conditions", [])
    if taken:
        why = f"{taken!r} is already in use"
        _set(conditions, "NamesAccepted", "False", "NameConflict", why)
        _set(conditions, "Established", "False", "NotAccepted", "not all names are accepted")
    else:
        status["acceptedNames"] = dict(names)
        _set(conditions, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
        _set(conditions, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
    stored = next((v["name"] for v in spec["versions"] if v.get("storage")), "")
    known = status.setdefault("storedVersions", [])
    if stored and stored not in known:
        known.append(stored)


def _set(conditions: list[Object], kind: str, status: str, reason: str, message: str) -> None:
    current = next((condition for condition in conditions if condition["type"] == kind), None)
    if current is None:
        current = {"type": kind, "lastTransitionTime": now_text()}
        conditions.append(current)
    elif current.get("status") != status:
        current["lastTransitionTime"] = now_text()
    current |= {"status": status, "reason": reason, "message": message}


def is_established(crd: Object) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


class CrdKeeper:
    """Follows the stored CRDs: serves their kinds, and empties those that are being deleted."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._work = asyncio.Event()
        self._instances: set[str] = set()

    def start(self) -> None:
        for record in self._server.store.list(CRDS):
            self._serve(record)
        self._server.store.subscribe(CRDS, self._changed)
        self._work.set()

    def _changed(self, change: Change) -> None:
        if change.type == DELETED:
            self._server.catalog.replace_custom(change.record.name, [])
        elif change.old is None or change.old.object()["spec"] != change.record.object()["spec"]:
            self._serve(change.record)
        if is_terminating(change.record.object()):
            self._work.set()

    def _serve(self, record: Record) -> None:
        crd = record.object()
        kinds = kinds_of(crd) if is_established(crd) else []
        self._server.catalog.replace_custom(record.name, kinds)
        if record.name not in self._instances:
            self._instances.add(record.name)
            self._server.store.subscribe(record.name, self._instance_changed)

    def _instance_changed(self, change: Change) -> None:
        if change.type == DELETED:
            self._work.set()

    async def run(self) -> None:
        """Removes the objects of deleted CRDs, then the CRDs themselves. Cancel it to end it."""
        while True:
            await self._work.wait()
            self._work.clear()
            for record in self._server.store.list(CRDS):
                crd = record.object()
                if is_terminating(crd) and CRD_CLEANUP in finalizers(crd):
                    await self._empty(record)

    async def _empty(self, record: Record) -> None:
        store = self._server.store
        for instance in store.list(record.name):
            await self._delete_instance(instance)
        if store.count(record.name):
            return  # Their finalizers still hold them; the last deletion wakes us again.
        crd = record.object()
        names = [name for name in crd["metadata"]["finalizers"] if name != CRD_CLEANUP]
        try:
            if names:
                crd["metadata"]["finalizers"] = names
                await store.put(CRDS, crd, expect=record.revision)
            else:
                await store.delete(CRDS, "", record.name, expect=record.revision)
        except Mismatch:
            self._again()

    async def _delete_instance(self, instance: Record) -> None:
        obj, store = instance.object(), self._server.store
        if is_terminating(obj):
            return
        kind = self._server.catalog.stored(instance.resource)
        try:
            if obj["metadata"].get("finalizers") and kind is not None:
                await store.put(instance.resource, mark_deleted(kind, obj, {}), expect=instance.revision)
            else:
                await store.delete(instance.resource, instance.namespace, instance.name, expect=instance.revision)
        except Mismatch:
            log.info("an object of a deleted CRD has changed, it is tried again", resource=instance.resource)
            self._again()

    def _again(self) -> None:
        asyncio.get_running_loop().call_later(_RETRY_S, self._work.set)
