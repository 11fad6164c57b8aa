"""The objects that an informer knows, by key and by index. Reads are one dict look-up.

Objects in the store are shared: never change one, `clone` it first.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from virt_core.apis.base import decode, encode
from virt_core.kube.client import KubeObject

T = TypeVar("T", bound=KubeObject)

Indexer = Callable[[T], list[str]]


def key_of(obj: KubeObject) -> str:
    """`namespace/name`, or the bare name of a cluster-wide object."""
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def split_key(key: str) -> tuple[str, str]:
    """Namespace (may be empty) and name."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


def clone(obj: T) -> T:
    """A deep copy that may be changed."""
    return decode(encode(obj), type(obj))


class Store(Generic[T]):
    def __init__(self, indexers: Mapping[str, Indexer[T]] | None = None) -> None:
        self._indexers = dict(indexers or {})
        self._objects: dict[str, T] = {}
        self._indexes: dict[str, dict[str, dict[str, T]]] = {name: {} for name in self._indexers}
        self._lock = threading.Lock()

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def list(self) -> list[T]:
        with self._lock:
            return list(self._objects.values())

    def keys(self) -> set[str]:
        with self._lock:
            return set(self._objects)

    def by_index(self, index: str, value: str) -> builtins.list[T]:
        with self._lock:
            return list(self._indexes[index].get(value, {}).values())

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, obj: T) -> T | None:
        """Stores the object and returns the one it replaces."""
        key = key_of(obj)
        with self._lock:
            old = self._objects.get(key)
            self._unindex(key, old)
            self._objects[key] = obj
            for name, indexer in self._indexers.items():
                for value in indexer(obj):
                    self._indexes[name].setdefault(value, {})[key] = obj
            return old

    def remove(self, key: str) -> T | None:
        with self._lock:
            old = self._objects.pop(key, None)
            self._unindex(key, old)
            return old

    def _unindex(self, key: str, old: T | None) -> None:
        if old is None:
            return
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            for value in indexer(old):
                members = index.get(value, {})
                members.pop(key, None)
                if not members:
                    index.pop(value, None)
