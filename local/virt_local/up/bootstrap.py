"""Puts the first objects into the API, and does nothing to those that are already as they should be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from virt_core.apis.base import Struct, decode
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.registry import resource_by_kind
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_local.up.manifests import MARK

Object = dict[str, Any]
_MERGE = "application/merge-patch+json"
_WORKERS = 4


class _Peek(Struct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


def apply_all(client: KubeClient, objects: list[Object]) -> int:
    """Applies the objects kind by kind, in the order in which the kinds come, and counts what was written."""
    written = 0
    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="bootstrap") as pool:
        for kind in dict.fromkeys(obj["kind"] for obj in objects):
            group = [obj for obj in objects if obj["kind"] == kind]
            written += sum(pool.map(lambda obj: apply_one(client, obj), group))
    return written


def apply_one(client: KubeClient, obj: Object) -> bool:
    """True when something was written."""
    metadata = obj["metadata"]
    resource = resource_by_kind(obj["kind"])
    collection = resource.path(metadata.get("namespace", ""))
    path = f"{collection}/{metadata['name']}"
    try:
        found = decode(client.raw("GET", path), _Peek)
    except NotFound:
        try:
            client.raw("POST", collection, body=msgspec.json.encode(obj))
            return True
        except AlreadyExists:
            found = _Peek()
    if found.metadata.annotations.get(MARK) == metadata["annotations"][MARK]:
        return False
    client.raw("PATCH", path, body=msgspec.json.encode(obj), content_type=_MERGE)
    return True
