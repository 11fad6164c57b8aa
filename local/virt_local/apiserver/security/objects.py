"""Stored objects as security reads them: decoded once, kept current by the store's own notifications.

Only small, often asked resources are kept decoded; everything else is read from the store when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from virt_local.apiserver.hooks import Object
from virt_local.apiserver.storage.feed import DELETED, Change
from virt_local.apiserver.storage.record import Record

Key = tuple[str, str]


class Source(Protocol):
    """What we need of the store."""

    def get(self, resource: str, namespace: str, name: str) -> Record | None: ...

    def list(self, resource: str, namespace: str = "") -> list[Record]: ...

    def subscribe(self, resource: str, listener: Callable[[Change], None]) -> None: ...


def follow(source: Source, resource: str, put: Callable[[Object], None], remove: Callable[[Object], None]) -> None:
    """Hands over every object there is, then every change. Runs in the event loop, so nothing is missed in between."""

    def on_change(change: Change) -> None:
        (remove if change.type == DELETED else put)(change.record.object())

    for record in source.list(resource):
        put(record.object())
    source.subscribe(resource, on_change)


class Kept:
    """One resource, decoded and current. The objects are shared: read them, never change them."""

    def __init__(self, source: Source, resource: str) -> None:
        self._objects: dict[Key, Object] = {}
        self.generation = 0
        follow(source, resource, self._put, self._remove)

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get((namespace, name))

    def all(self) -> list[Object]:
        return [self._objects[key] for key in sorted(self._objects)]

    def in_namespace(self, namespace: str) -> list[Object]:
        return [self._objects[key] for key in sorted(self._objects) if key[0] == namespace]

    def _put(self, obj: Object) -> None:
        self._objects[_key(obj)] = obj
        self.generation += 1

    def _remove(self, obj: Object) -> None:
        self._objects.pop(_key(obj), None)
        self.generation += 1


def _key(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
