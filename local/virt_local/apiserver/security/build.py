"""Puts the security parts together from the command line's options."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from virt_core.runtime.logs import get_logger
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import Hooks, Object
from virt_local.apiserver.patches.json_patch import apply_json_patch
from virt_local.apiserver.process import Options
from virt_local.apiserver.proxy.aggregator import RESOURCE, Aggregator, FrontProxy
from virt_local.apiserver.proxy.availability import Availability
from virt_local.apiserver.proxy.node import NodeProxy, NodeTls
from virt_local.apiserver.security.admission import Admission
from virt_local.apiserver.security.authenticator import Authenticator, read_static_tokens
from virt_local.apiserver.security.authorizer import Authorizer
from virt_local.apiserver.security.endpoints import Resolver
from virt_local.apiserver.security.impersonation import Impersonator
from virt_local.apiserver.security.issuer import TokenIssuer
from virt_local.apiserver.security.tokens import load_signer
from virt_local.apiserver.security.webhooks.client import WebhookClient
from virt_local.apiserver.security.webhooks.dispatch import PatchFailed, Webhooks
from virt_local.apiserver.server import Server
from virt_local.controllers.garbage.collector import Collector

log = get_logger("virt-local.apiserver")


@dataclass
class SecureHooks(Hooks):
    """The hooks of a server that asks who you are. Starts and stops the connections and tasks behind them."""

    client: WebhookClient = field(kw_only=True)
    availability: Availability = field(kw_only=True)
    remote: Aggregator = field(kw_only=True)
    nodes: NodeProxy = field(kw_only=True)
    collector: Collector = field(kw_only=True)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self) -> None:
        await self.client.start()
        await self.remote.start()
        await self.nodes.start()
        self.collector.attach()
        for name, work in (("aggregation", self.availability.run()), ("garbage", self.collector.run())):
            self._tasks.append(asyncio.create_task(_guarded(name, work), name=name))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()
        await self.remote.close()
        await self.nodes.close()


async def _guarded(name: str, work: Coroutine[object, object, None]) -> None:
    """A task that dies is a bug: say so loudly, keep serving."""
    try:
        await work
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("a background task of the API server has died", task=name)


def build(server: Server, options: Options) -> SecureHooks:
    store = server.store
    signer = load_signer(Path(options.service_account_key).read_bytes())
    issuer = options.service_account_issuer
    authorizer = Authorizer(store)
    resolver = Resolver(store)
    aggregator = Aggregator(store, resolver, FrontProxy(options.front_proxy_cert, options.front_proxy_key))
    client = WebhookClient(resolver, aggregator)
    nodes = NodeProxy(store, _node_tls(options))
    tokens = options.extra.get("token_file", "")
    return SecureHooks(
        authenticator=Authenticator(
            store,
            signer,
            issuer,
            Impersonator(authorizer),
            static_tokens=read_static_tokens(Path(tokens)) if tokens else {},
        ),
        authorizer=authorizer,
        admission=Admission(
            store,
            authorizer.index,
            Webhooks(store, client, _apply_patch),
            idle_services=options.idle_services,
        ),
        aggregator=aggregator,
        node_proxy=nodes,
        token_issuer=TokenIssuer(store, signer, issuer),
        client=client,
        availability=Availability(aggregator, store, server.catalog.stored(RESOURCE)),
        remote=aggregator,
        nodes=nodes,
        collector=Collector(server),
    )


def _node_tls(options: Options) -> NodeTls:
    ca = options.node_proxy_ca or options.client_ca
    return NodeTls(ca, options.extra.get("node_client_cert", ""), options.extra.get("node_client_key", ""))


def _apply_patch(obj: Object, operations: list[Object]) -> Object:
    try:
        patched: Object = apply_json_patch(obj, operations)
    except errors.ApiError as err:
        raise PatchFailed(getattr(err, "why", "") or err.message) from err
    return patched
