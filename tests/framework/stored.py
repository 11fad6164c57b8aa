"""Stored objects without a store: what virt-local's security and garbage collection read, from a dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virt_local.apiserver.hooks import AdmissionRequest, User
from virt_local.apiserver.storage.feed import ADDED, DELETED, MODIFIED, Change
from virt_local.apiserver.storage.record import Record, make_record

Object = dict[str, Any]


class FakeSource:
    """The reading half of the API server's store, and `put`/`remove` for the test."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str, str], Record] = {}
        self._listeners: dict[str, list[Callable[[Change], None]]] = {}
        self._revision = 0

    def get(self, resource: str, namespace: str, name: str) -> Record | None:
        return self._records.get((resource, namespace, name))

    def list(self, resource: str, namespace: str = "") -> list[Record]:
        found = [key for key in sorted(self._records) if key[0] == resource and namespace in ("", key[1])]
        return [self._records[key] for key in found]

    def subscribe(self, resource: str, listener: Callable[[Change], None]) -> None:
        self._listeners.setdefault(resource, []).append(listener)

    def put(self, resource: str, obj: Object) -> Record:
        self._revision += 1
        record = make_record(resource, obj, self._revision, {})
        old = self._records.get(record.key)
        self._records[record.key] = record
        self._tell(Change(type=MODIFIED if old else ADDED, record=record, old=old))
        return record

    def remove(self, resource: str, name: str, namespace: str = "") -> None:
        record = self._records.pop((resource, namespace, name))
        self._tell(Change(type=DELETED, record=record, old=record))

    def _tell(self, change: Change) -> None:
        for listener in self._listeners.get(change.record.resource, ()):
            listener(change)


def meta(name: str, namespace: str = "", **more: Any) -> Object:
    return {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {}), **more}


def admission(
    operation: str = "CREATE",
    resource: str = "pods",
    *,
    group: str = "",
    kind: str = "Pod",
    obj: Object | None = None,
    old: Object | None = None,
    user: User | None = None,
    name: str = "x",
    namespace: str = "default",
    subresource: str = "",
    version: str = "v1",
    dry_run: bool = False,
) -> AdmissionRequest:
    return AdmissionRequest(
        operation=operation,
        group=group,
        version=version,
        kind=kind,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
        user=user or User("alice", ("system:authenticated",)),
        object=obj,
        old_object=old,
        options={},
        dry_run=dry_run,
    )
