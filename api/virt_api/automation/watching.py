"""List and watch as one stream that outlives the API server's own time limit and its short absences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from virt_api.automation.objects import Resource, to_object, view
from virt_api.automation.userapi import Call, UserApi
from virt_core.apis.base import decode
from virt_core.apis.meta import ListMeta
from virt_core.kube.errors import Undecodable, Unreachable, error_from
from virt_protos.automation.v1 import automation_pb2 as pb

PAGE = 500
_WATCH_S = 240
_LINE_LIMIT = 32 << 20
_RETRIES = 10
_RETRY_S = 1.0
_TYPES = {
    "ADDED": pb.WatchEvent.TYPE_ADDED,
    "MODIFIED": pb.WatchEvent.TYPE_MODIFIED,
    "DELETED": pb.WatchEvent.TYPE_DELETED,
    "BOOKMARK": pb.WatchEvent.TYPE_BOOKMARK,
}


@dataclass(frozen=True, slots=True)
class Collection:
    resource: Resource
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def call(self, **query: str) -> Call:
        given = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector, **query}
        return Call("GET", self.resource.path(self.namespace), {key: value for key, value in given.items() if value})


class Page(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] | None = None
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class _Frame(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


async def page(api: UserApi, token: str, where: Collection, *, limit: int = PAGE, after: str = "") -> Page:
    """One page of a list. Raises ApiError."""
    body = await api.send(token, where.call(**{"limit": str(limit) if limit else "", "continue": after}))
    try:
        return decode(body, Page)
    except msgspec.MsgspecError as error:
        raise Undecodable(f"the list of {where.resource.plural}: {error}") from error


async def changes(
    api: UserApi, token: str, where: Collection, version: str = ""
) -> AsyncGenerator[pb.WatchEvent, None]:
    """Without a version: what is there, a BOOKMARK, then the changes. Raises ApiError (410: the version is too old)."""
    if not version:
        async for event in _present(api, token, where):
            yield event
            version = event.resource_version
    failures = 0
    while True:
        quiet = True
        try:
            async with aclosing(_watch(api, token, where, version)) as events:
                async for event in events:
                    failures, quiet, version = 0, False, event.resource_version
                    yield event
        except Unreachable:
            failures += 1
            if failures > _RETRIES:
                raise
        if quiet:
            # Whatever ended it, do not ask again and again.
            await asyncio.sleep(_RETRY_S)


async def _present(api: UserApi, token: str, where: Collection) -> AsyncIterator[pb.WatchEvent]:
    after = ""
    while True:
        found = await page(api, token, where, after=after)
        for item in found.items or []:
            obj = to_object(where.resource, item)
            yield pb.WatchEvent(type=pb.WatchEvent.TYPE_ADDED, object=obj, resource_version=obj.resource_version)
        after = found.metadata.continue_
        if not after:
            break
    version = found.metadata.resource_version
    yield pb.WatchEvent(type=pb.WatchEvent.TYPE_BOOKMARK, resource_version=version)


async def _watch(api: UserApi, token: str, where: Collection, version: str) -> AsyncGenerator[pb.WatchEvent, None]:
    call = where.call(watch="true", allowWatchBookmarks="true", resourceVersion=version, timeoutSeconds=str(_WATCH_S))
    async with aclosing(api.stream(token, call, quiet_s=_WATCH_S)) as chunks, aclosing(_lines(chunks)) as lines:
        async for line in lines:
            yield _event(where.resource, line)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > _LINE_LIMIT:
                raise Undecodable(f"a watch event is over {_LINE_LIMIT} bytes")
            continue
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in lines:
            if line:
                yield line


def _event(resource: Resource, line: bytes) -> pb.WatchEvent:
    try:
        frame = decode(line, _Frame)
    except msgspec.MsgspecError as error:
        raise Undecodable(f"a watch event of {resource.plural}: {error}") from error
    if frame.type == "ERROR":
        raise error_from(0, bytes(frame.object))
    kind = _TYPES.get(frame.type, pb.WatchEvent.TYPE_UNSPECIFIED)
    if kind == pb.WatchEvent.TYPE_BOOKMARK:
        return pb.WatchEvent(type=kind, resource_version=view(frame.object).metadata.resource_version)
    obj = to_object(resource, frame.object)
    return pb.WatchEvent(type=kind, object=obj, resource_version=obj.resource_version)
