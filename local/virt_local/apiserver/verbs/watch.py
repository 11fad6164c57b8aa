"""Watch: the changes of a resource as a stream of JSON lines."""

from __future__ import annotations

import asyncio
import random
import time

from aiohttp import web

from virt_local.apiserver import errors
from virt_local.apiserver.output.encode import EventEncoder, encode_event
from virt_local.apiserver.request import integer, is_true, revision
from virt_local.apiserver.selectors import RecordTest
from virt_local.apiserver.storage import Change, Expired, Record, Watcher
from virt_local.apiserver.storage.feed import ADDED, DELETED, Filter
from virt_local.apiserver.storage.record import make_record
from virt_local.apiserver.verbs.call import Call
from virt_local.apiserver.verbs.options import check_list
from virt_local.apiserver.verbs.read import record_test, select

_BOOKMARK_EVERY_S = 50.0
_MIN_TIMEOUT_S = 1800
_CHUNK = 200


def make_filter(test: RecordTest, namespace: str) -> Filter:
    """What a change means to one watcher: an object that enters its selection is added, one that leaves is deleted."""

    def change_for(change: Change) -> Change | None:
        record, old = change.record, change.old
        if namespace and record.namespace != namespace:
            return None
        was = old is not None and test(old)
        is_now = change.type != DELETED and test(record)
        if is_now:
            return change if was or change.type == ADDED else Change(type=ADDED, record=record, old=old)
        if old is not None and was:
            # What leaves the selection is told as it was when it was still in it.
            return change if change.type == DELETED else Change(type=DELETED, record=_last(old, record), old=old)
        return None

    return change_for


def _last(old: Record, record: Record) -> Record:
    return make_record(old.resource, old.object(), record.revision, {})


def _too_old(text: str) -> bytes:
    return encode_event("ERROR", errors.gone(text).body())


class _Start:
    """Where a watch begins: with the state there is now, or after a revision."""

    def __init__(self, call: Call) -> None:
        try:
            asked = revision(call.query)
        except ValueError as error:
            raise errors.storage(str(error)) from None
        store = call.server.store
        self.wants_initial = is_true(call.query.get("sendInitialEvents"))
        self.wants_bookmarks = is_true(call.query.get("allowWatchBookmarks"))
        self.initial: list[Record] = []
        self.after = asked or 0
        if self.wants_initial or not asked:
            self.initial = select(call) if self.wants_initial or "sendInitialEvents" not in call.query else []
            self.after = store.revision


async def watch(call: Call, request: web.Request, encoder: EventEncoder) -> web.StreamResponse:
    """Streams until the time is over, the client goes, or the server stops."""
    check_list(call.query)
    test = record_test(call)
    start = _Start(call)
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    try:
        watcher = call.server.store.watch(call.kind.storage, make_filter(test, call.namespace), start.after)
    except Expired as expired:
        await response.prepare(request)
        await response.write(_too_old(str(expired)))
        return response
    try:
        await response.prepare(request)
        await _send_initial(response, encoder, start)
        await _follow(call, request, response, encoder, watcher)
    except (ConnectionError, asyncio.CancelledError):
        pass  # The client has gone: that is how most watches end.
    finally:
        watcher.close()
    return response


async def _send_initial(response: web.StreamResponse, encoder: EventEncoder, start: _Start) -> None:
    for first in range(0, len(start.initial), _CHUNK):
        chunk = start.initial[first : first + _CHUNK]
        await response.write(b"".join(encoder(ADDED, record) for record in chunk))
    if start.wants_initial and start.wants_bookmarks:
        await response.write(encoder.bookmark(start.after, initial_end=True))


def _is_open(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


async def _follow(
    call: Call, request: web.Request, response: web.StreamResponse, encoder: EventEncoder, watcher: Watcher
) -> None:
    deadline = time.monotonic() + _timeout_s(call)
    bookmarks = is_true(call.query.get("allowWatchBookmarks"))
    next_bookmark = time.monotonic() + _BOOKMARK_EVERY_S
    while not watcher.closed and not call.server.stopping.is_set() and _is_open(request):
        now = time.monotonic()
        if now >= deadline:
            return
        batch = await watcher.next_batch(min(deadline - now, max(next_bookmark - now, 0.01)))
        if batch:
            await response.write(b"".join(encoder(change.type, change.record) for change in batch))
        elif bookmarks and not watcher.closed and time.monotonic() >= next_bookmark:
            await response.write(encoder.bookmark(call.server.store.revision, initial_end=False))
        if time.monotonic() >= next_bookmark:
            next_bookmark = time.monotonic() + _BOOKMARK_EVERY_S


def _timeout_s(call: Call) -> float:
    """A client that names no limit is disconnected at a random time, so that not all come back at once."""
    asked = integer(call.query, "timeoutSeconds")
    return float(asked) if asked else _MIN_TIMEOUT_S * (1 + random.random())  # noqa: S311 (no secret)
