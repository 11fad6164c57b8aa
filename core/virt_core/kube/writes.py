"""Writing to an object that others write to as well: what changed becomes one JSON patch, and we read our own writes.

The patch tests the version that the decision was made on; if somebody was faster, the answer is a Conflict and the loop
decides again. `OwnWrites` bridges the moment in which the informer does not show our own write yet: without it, a
controller that is called again at once would decide on the old object and write twice.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from virt_core.apis.base import to_plain
from virt_core.kube.client import KubeClient, KubeObject
from virt_core.kube.errors import Conflict, Invalid
from virt_core.kube.patch import JsonPatch, op, pointer

T = TypeVar("T", bound=KubeObject)

#: Maps whose keys have different owners are changed key by key.
_MAPS = (("metadata", "labels"), ("metadata", "annotations"), ("status",))


def difference(old: KubeObject, new: KubeObject) -> list[dict[str, Any]]:
    """The operations that turn labels, annotations, finalizers and status of `old` into those of `new`."""
    before, after = to_plain(old), to_plain(new)
    operations: list[dict[str, Any]] = []
    for path in _MAPS:
        operations += _map_difference(path, _at(before, path), _at(after, path))
    finalizers = ("metadata", "finalizers")
    if _at(before, finalizers) != _at(after, finalizers):
        operations.append(op.add(pointer(*finalizers), _at(after, finalizers) or []))
    return operations


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        document = document.get(part) or {}
    return document


def _map_difference(path: tuple[str, ...], before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    if before == after:
        return []
    if not before:
        return [op.add(pointer(*path), after)]
    changed = [op.add(pointer(*path, key), value) for key, value in after.items() if before.get(key) != value]
    return changed + [op.remove(pointer(*path, key)) for key in before if key not in after]


def write_difference(client: KubeClient, old: T, new: T) -> T | None:
    """Writes what changed, if anything did. Raises Conflict when `old` is not the newest version any more."""
    return write_operations(client, old, difference(old, new))


def write_status(client: KubeClient, old: T, new: T) -> T | None:
    """The same for the status alone, of a kind whose status is a subresource."""
    before, after = _at(to_plain(old), ("status",)), _at(to_plain(new), ("status",))
    return write_operations(client, old, _map_difference(("status",), before, after), "status")


def write_operations(
    client: KubeClient, old: T, operations: Sequence[Mapping[str, Any]], subresource: str = ""
) -> T | None:
    """Patches `old`, if there is anything to patch, and only if it is still the newest version."""
    if not operations:
        return None
    guard = op.test("/metadata/resourceVersion", old.metadata.resource_version)
    meta = old.metadata
    patch = JsonPatch([guard, *operations])
    try:
        return client.patch(type(old), meta.name, meta.namespace, patch, subresource=subresource)
    except Invalid as error:
        # A failed test is a 422 like a refused field; only the latter carries causes.
        if error.causes:
            raise
        raise Conflict(409, "Conflict", error.message) from error


class OwnWrites(Generic[T]):
    """The newest version of each object that we have written, until the informer has caught up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: dict[str, T] = {}

    def remember(self, obj: T) -> None:
        with self._lock:
            self._written[obj.metadata.uid] = obj

    def freshest(self, cached: T) -> T:
        """The informer's object, or ours if that is newer."""
        with self._lock:
            written = self._written.get(cached.metadata.uid)
            if written is None:
                return cached
            if version_of(written) > version_of(cached):
                return written
            del self._written[cached.metadata.uid]
            return cached

    def forget(self, uid: str) -> None:
        with self._lock:
            self._written.pop(uid, None)


def version_of(obj: KubeObject) -> int:
    """Resource versions of one resource are ordered numbers (Kubernetes 1.35 made that a promise)."""
    version = obj.metadata.resource_version
    return int(version) if version.isdecimal() else 0
