"""Keeps each APIService's `Available` condition true to life, and remembers what the service offers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import aiohttp
import msgspec

from virt_core.runtime.logs import get_logger
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import Object
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.patches.ownership import track_update
from virt_local.apiserver.proxy.aggregator import RESOURCE, Aggregator
from virt_local.apiserver.security.endpoints import NoEndpoint
from virt_local.apiserver.storage.record import Record

log = get_logger("virt-local.apiserver.aggregation")

_TICK_S = 0.1
_FIRST_RETRY_S = 0.1
_MAX_RETRY_S = 5.0
_RECHECK_S = 30.0
_ASK_S = 5.0


class Writes(Protocol):
    def get(self, resource: str, namespace: str, name: str) -> Record | None: ...

    async def put(self, resource: str, obj: Object, *, expect: int = ...) -> Record: ...


@dataclass(slots=True)
class _Schedule:
    due: float = 0.0
    failures: int = 0


class Availability:
    """One task that asks each service now and then: soon after a failure or a change, rarely when all is well."""

    def __init__(self, aggregator: Aggregator, store: Writes, kind: Kind | None = None) -> None:
        self._kind = kind  # of APIServices, for whose status we are then named as the owner
        self._aggregator = aggregator
        self._store = store
        self._schedules: dict[str, _Schedule] = {}
        self._generation = -1

    async def run(self) -> None:
        while True:
            self._notice_changes()
            now = time.monotonic()
            for service in self._aggregator.remote():
                schedule = self._schedules.setdefault(service["metadata"]["name"], _Schedule())
                if schedule.due <= now:
                    await self._check(service, schedule)
            await asyncio.sleep(_TICK_S)

    def _notice_changes(self) -> None:
        generation = self._aggregator.resolver.generation + len(self._aggregator.services.all())
        if generation != self._generation:
            self._generation = generation
            self._schedules.clear()
            known = {service["metadata"]["name"] for service in self._aggregator.remote()}
            for gone in set(self._aggregator.offers) - known:
                del self._aggregator.offers[gone]

    async def _check(self, service: Object, schedule: _Schedule) -> None:
        name = service["metadata"]["name"]
        try:
            offer = await self._ask(service)
        except _Unavailable as err:
            self._aggregator.offers.pop(name, None)
            schedule.due = time.monotonic() + min(_FIRST_RETRY_S * 2**schedule.failures, _MAX_RETRY_S)
            schedule.failures = min(schedule.failures + 1, 10)
            await self._report(name, "False", err.reason, str(err))
            return
        self._aggregator.offers[name] = offer
        schedule.failures, schedule.due = 0, time.monotonic() + _RECHECK_S
        await self._report(name, "True", "Passed", "all checks passed")

    async def _ask(self, service: Object) -> Object:
        spec = service["spec"]
        try:
            ref = spec["service"]
            self._aggregator.resolver.resolve(ref["namespace"], ref["name"], int(ref.get("port") or 443))
            endpoint, tls = self._aggregator.reach(service)
        except NoEndpoint as err:
            raise _Unavailable(err.reason, str(err)) from err
        except errors.ApiError as err:
            raise _Unavailable("FailedDiscoveryCheck", err.message) from err
        except errors.Unreachable as err:
            raise _Unavailable("FailedDiscoveryCheck", str(err)) from err
        url = f"{endpoint.base}/apis/{spec['group']}/{spec['version']}"
        try:
            async with (
                asyncio.timeout(_ASK_S),
                self._aggregator.session.get(
                    url, headers=self._aggregator.question(), ssl=tls, server_hostname=endpoint.server_name
                ) as answer,
            ):
                return _offer(answer.status, await answer.read())
        except (aiohttp.ClientError, OSError, TimeoutError) as err:
            text = f"failing or missing response from {url}: {err or 'timed out'}"
            raise _Unavailable("FailedDiscoveryCheck", text) from err

    async def _report(self, name: str, status: str, reason: str, message: str) -> None:
        record = self._store.get(RESOURCE, "", name)
        if record is None:
            return
        obj = record.object()
        conditions = (obj.get("status") or {}).get("conditions") or []
        known = next((each for each in conditions if each.get("type") == "Available"), None)
        if known and (known.get("status"), known.get("reason")) == (status, reason):
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        changed = known is None or known.get("status") != status
        since = now if changed or known is None else known.get("lastTransitionTime", now)
        entry = {
            "type": "Available",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }
        rest = [each for each in conditions if each.get("type") != "Available"]
        obj["status"] = {**(obj.get("status") or {}), "conditions": [*rest, entry]}
        if self._kind is not None:
            track_update(record.object(), obj, self._kind.node, manager="kube-apiserver", subresource="status")
        try:
            await self._store.put(RESOURCE, obj, expect=record.revision)
        except Exception as err:
            log.warning("an APIService's condition could not be written", apiservice=name, error=str(err))


class _Unavailable(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def _offer(status: int, body: bytes) -> Object:
    if status != 200:
        raise _Unavailable("FailedDiscoveryCheck", f"the service answered {status} for its resource list")
    try:
        offer: Object = msgspec.json.decode(body, type=dict)
    except msgspec.DecodeError as err:
        raise _Unavailable("FailedDiscoveryCheck", f"the service's resource list is no JSON: {err}") from err
    return offer
