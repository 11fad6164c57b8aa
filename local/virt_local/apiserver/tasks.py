"""What the API server does by itself while it serves: it empties deleted CRDs and forgets old Events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from virt_core.runtime.logs import get_logger
from virt_local.apiserver.meta import parse_time
from virt_local.apiserver.protection import VolumeProtection
from virt_local.apiserver.server import Server
from virt_local.apiserver.storage import Mismatch, Record

log = get_logger("virt-local.apiserver")

EVENT_TTL = timedelta(hours=1)
_SWEEP_EVERY_S = 60.0


@asynccontextmanager
async def background_tasks(server: Server) -> AsyncIterator[None]:
    protection = VolumeProtection(server)
    protection.attach()
    tasks = [
        asyncio.create_task(_guarded(server.crds.run(), "crds"), name="crds"),
        asyncio.create_task(_guarded(protection.run(), "volumes"), name="volumes"),
        asyncio.create_task(_guarded(_sweep_events(server), "events"), name="events"),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _guarded(work: Coroutine[Any, Any, None], name: str) -> None:
    """A task that dies is a bug: say so loudly, keep serving."""
    try:
        await work
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("a background task of the API server has died", task=name)


async def _sweep_events(server: Server) -> None:
    while True:
        await asyncio.sleep(_SWEEP_EVERY_S)
        await expire_events(server, datetime.now(UTC))


async def expire_events(server: Server, now: datetime) -> int:
    """Deletes Events that nobody has touched for an hour. Returns how many."""
    old = [record for record in server.store.list("events") if _age_mark(record) < now - EVENT_TTL]
    for record in old:
        try:
            await server.store.delete("events", record.namespace, record.name, expect=record.revision)
        except Mismatch:
            continue
    return len(old)


def _age_mark(record: Record) -> datetime:
    event = record.object()
    times = [event.get("lastTimestamp"), (event.get("series") or {}).get("lastObservedTime")]
    times += [event.get("eventTime"), event["metadata"].get("creationTimestamp")]
    return max(parse_time(text) for text in times if text)
