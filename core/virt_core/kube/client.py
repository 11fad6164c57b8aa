"""The Kubernetes API in terms of our structs: get, list, watch, create, replace, patch, delete.

Answers are decoded straight into the structs, so unknown fields are gone: change what you do not own by `patch`, and
use `replace` only for objects that are ours alone (a Lease). Thread safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from virt_core import __version__
from virt_core.apis.base import decode, encode
from virt_core.apis.meta import DeleteOptions, ListMeta, ObjectMeta, Preconditions
from virt_core.apis.registry import Resource, UnusableName, encode_object, resource_of
from virt_core.kube.connect import Connection
from virt_core.kube.errors import Gone, NotFound, Undecodable
from virt_core.kube.patch import Patch
from virt_core.kube.transport import Request, Transport
from virt_core.kube.watch import Watch, WatchEvent
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger

__all__ = ["KubeClient", "KubeObject", "ObjectList", "WatchEvent"]

log = get_logger(__name__)

#: A quiet watch is ended by the server in time; this much later we stop believing that it still is there.
_WATCH_SLACK_S = 30.0


class KubeObject(Protocol):
    metadata: ObjectMeta


T = TypeVar("T", bound=KubeObject)


@dataclass(slots=True)
class ObjectList(Generic[T]):
    items: list[T]
    resource_version: str


class _RawList(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] | None = None
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class KubeClient:
    def __init__(
        self,
        connection: Connection,
        user_agent: str = "virtpod",
        timeout_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self.connection = connection
        self._transport = Transport(connection, f"{user_agent}/{__version__}", timeout_s, clock)

    def close(self) -> None:
        self._transport.close()

    def get(self, cls: type[T], name: str, namespace: str = "") -> T:
        return self._object(cls, Request("GET", object_path(resource_of(cls), namespace, name)))

    def list(
        self,
        cls: type[T],
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        *,
        skip_invalid: bool = False,
    ) -> ObjectList[T]:
        """All matching objects, page by page. `skip_invalid` logs and leaves out what does not fit the struct."""
        path = collection_path(resource_of(cls), namespace)
        query = _selectors(label_selector, field_selector)
        if limit:
            query["limit"] = str(limit)
        items: list[T] = []
        while True:
            page = self._page(path, query)
            if page is None:
                # The snapshot that we were paging through has expired: take it in one piece.
                query.pop("limit", None)
                query.pop("continue", None)
                items.clear()
                continue
            items.extend(_decode_items(page.items or [], cls, skip_invalid))
            if not page.metadata.continue_:
                return ObjectList(items, page.metadata.resource_version)
            query["continue"] = page.metadata.continue_

    def watch(
        self,
        cls: type[T],
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: int = 300,
        skip_invalid: bool = False,
    ) -> Watch[T]:
        """The changes since a version. Ends when the server ends it; raises Gone when the version is too old."""
        query = _selectors(label_selector, field_selector)
        query |= {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        }
        request = Request("GET", collection_path(resource_of(cls), namespace), query)
        return Watch(self._transport.open_stream(request, timeout_s + _WATCH_SLACK_S), cls, skip_invalid)

    def create(self, obj: T, *, namespace: str = "", dry_run: bool = False) -> T:
        path = collection_path(resource_of(type(obj)), namespace or obj.metadata.namespace)
        query = {"dryRun": "All"} if dry_run else {}
        return self._object(type(obj), Request("POST", path, query, encode_object(obj)))

    def replace(self, obj: T, *, subresource: str = "") -> T:
        path = object_path(resource_of(type(obj)), obj.metadata.namespace, obj.metadata.name, subresource)
        return self._object(type(obj), Request("PUT", path, {}, encode_object(obj)))

    def patch(self, cls: type[T], name: str, namespace: str, patch: Patch, *, subresource: str = "") -> T:
        path = object_path(resource_of(cls), namespace, name, subresource)
        return self._object(cls, Request("PATCH", path, patch.query(), patch.body(), patch.content_type))

    def delete(
        self,
        cls: type[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        propagation: str = "",
        dry_run: bool = False,
    ) -> None:
        """With `uid` only that very object goes: Conflict when another one has taken its name. With a version it must
        also be as it was when we decided."""
        options = DeleteOptions(
            grace_period_seconds=grace_period_s,
            preconditions=Preconditions(uid or None, resource_version or None) if uid or resource_version else None,
            propagation_policy=propagation or None,
        )
        path = object_path(resource_of(cls), namespace, name)
        query = {"dryRun": "All"} if dry_run else {}
        self._transport.send(Request("DELETE", path, query, encode(options)))

    def raw(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        """Any other call, e.g. a subresource of ours. The path begins with a slash; returns the body as it came."""
        return self._transport.send(Request(method, path, query or {}, body, content_type, "*/*"), timeout_s)

    def _object(self, cls: type[T], request: Request) -> T:
        body = self._transport.send(request)
        try:
            return decode(body, cls)
        except msgspec.MsgspecError as error:
            raise Undecodable(f"{request.method} {request.path}: {error}") from error

    def _page(self, path: str, query: dict[str, str]) -> _RawList | None:
        try:
            body = self._transport.send(Request("GET", path, query))
        except Gone:
            if "continue" not in query:
                raise
            return None
        try:
            return decode(body, _RawList)
        except msgspec.MsgspecError as error:
            raise Undecodable(f"GET {path}: {error}") from error


def _decode_items(items: list[msgspec.Raw], cls: type[T], skip_invalid: bool) -> Iterator[T]:
    for item in items:
        try:
            yield decode(item, cls)
        except msgspec.MsgspecError as error:
            if not skip_invalid:
                raise Undecodable(f"an item of the {cls.__name__} list: {error}") from error
            log.error("left out an object that does not fit its kind", kind=cls.__name__, error=str(error))


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    pairs = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in pairs.items() if value}


def object_path(resource: Resource, namespace: str, name: str, subresource: str = "") -> str:
    if not name:
        raise ValueError(f"a {resource.kind} needs a name")
    if resource.namespaced and not namespace:
        raise ValueError(f"{resource.kind} {name} needs a namespace")
    return _path(resource, namespace, name, subresource)


def collection_path(resource: Resource, namespace: str) -> str:
    return _path(resource, namespace)


def _path(resource: Resource, namespace: str, name: str = "", subresource: str = "") -> str:
    """What cannot be is not there. Raises NotFound."""
    try:
        return resource.path(namespace, name, subresource)
    except UnusableName as error:
        raise NotFound(404, "NotFound", f"{resource.plural}: {error}") from error
