"""Calls a webhook over HTTPS: connections stay open, certificates are checked against the webhook's own bundle.

A webhook that names the Service of the API itself is asked by way of our own aggregation layer: the server behind it
knows us by the front-proxy certificate, and knows that it is the API server who asks.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import User
from virt_local.apiserver.proxy.headers import identity
from virt_local.apiserver.security.endpoints import NoEndpoint, Resolver
from virt_local.apiserver.security.webhooks.match import Webhook

MAX_ANSWER_BYTES = 4 * 1024 * 1024
_KEEP_ALIVE_S = 60
_CONTEXT_LIMIT = 64
#: Who we are to those who answer behind our own aggregation layer.
_OURSELVES = User("system:apiserver", ("system:authenticated", "system:masters"))
_OWN_SERVICE = ("default", "kubernetes", 443)


class Aggregation(Protocol):
    """What is used of the aggregation layer."""

    def address(self, path: str) -> tuple[str, str, ssl.SSLContext]: ...


@dataclass(frozen=True, slots=True)
class _Way:
    """How to reach a webhook."""

    url: str
    #: In the certificate; None: the one in the URL.
    server_name: str | None
    tls: ssl.SSLContext
    #: Who we are, where that is asked for.
    identity: CIMultiDict[str] = field(default_factory=CIMultiDict)


class CallFailed(Exception):
    """The webhook could not be asked; the text says why, as the real API server would."""


class WebhookClient:
    def __init__(self, resolver: Resolver, aggregation: Aggregation) -> None:
        self._resolver, self._aggregation = resolver, aggregation
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(limit=200, limit_per_host=64, keepalive_timeout=_KEEP_ALIVE_S)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, webhook: Webhook, body: bytes) -> bytes:
        """Posts the review and returns the answer's body. Raises CallFailed."""
        config = webhook.spec.get("clientConfig") or {}
        shown = _shown_url(config)
        try:
            async with asyncio.timeout(webhook.timeout_s):
                return await self._post(webhook, config, shown, body)
        except TimeoutError as err:
            raise CallFailed(f'Post "{shown}?timeout={webhook.timeout_s}s": context deadline exceeded') from err
        except (aiohttp.ClientError, OSError, NoEndpoint) as err:
            raise CallFailed(f'Post "{shown}?timeout={webhook.timeout_s}s": {err}') from err

    async def _post(self, webhook: Webhook, config: dict[str, object], shown: str, body: bytes) -> bytes:
        if self._session is None:
            raise CallFailed("the webhook client is not running")
        way = self._way(config)
        headers = CIMultiDict({"Content-Type": "application/json", "Accept": "application/json"})
        headers["Host"] = urlsplit(shown).netloc
        headers.extend(way.identity)
        async with self._session.post(
            f"{way.url}?timeout={webhook.timeout_s}s",
            data=body,
            headers=headers,
            ssl=way.tls,
            server_hostname=way.server_name,
            allow_redirects=False,
        ) as response:
            answer = await response.content.read(MAX_ANSWER_BYTES + 1)
            while len(answer) <= MAX_ANSWER_BYTES and not response.content.at_eof():
                answer += await response.content.read(MAX_ANSWER_BYTES + 1 - len(answer))
            if len(answer) > MAX_ANSWER_BYTES:
                raise CallFailed(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
            if response.status != 200:
                raise CallFailed(
                    f"the server answered {response.status}: {answer[:200].decode(errors='replace').strip()}"
                )
            return answer

    def _way(self, config: dict[str, object]) -> _Way:
        tls = self._context(str(config.get("caBundle") or ""))
        service = config.get("service")
        if not isinstance(service, dict):
            return _Way(str(config.get("url", "")), None, tls)
        wanted = (str(service["namespace"]), str(service["name"]), int(service.get("port") or 443))
        if wanted == _OWN_SERVICE:
            return self._own_way(str(service.get("path") or "/"))
        endpoint = self._resolver.resolve(*wanted)
        return _Way(f"{endpoint.base}{service.get('path') or '/'}", endpoint.server_name, tls)

    def _own_way(self, path: str) -> _Way:
        try:
            url, server_name, tls = self._aggregation.address(path)
        except errors.Unreachable as err:
            raise CallFailed("the server is currently unable to handle the request") from err
        except errors.ApiError as err:
            raise CallFailed(err.message) from err
        return _Way(url, server_name, tls, identity(_OURSELVES))

    def _context(self, bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is None:
            if len(self._contexts) >= _CONTEXT_LIMIT:
                self._contexts.clear()
            context = self._contexts[bundle] = trust(bundle)
        return context


def trust(bundle: str) -> ssl.SSLContext:
    """A context that trusts only the given base64 PEM bundle, or the system's authorities when there is none."""
    try:
        pem = base64.b64decode(bundle).decode()
        context = ssl.create_default_context(cadata=pem or None)
    except (ValueError, ssl.SSLError) as err:
        raise CallFailed(f"unable to load root certificates: {err}") from err
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _shown_url(config: dict[str, object]) -> str:
    service = config.get("service")
    if not isinstance(service, dict):
        return str(config.get("url", ""))
    port = int(service.get("port") or 443)
    return f"https://{service['name']}.{service['namespace']}.svc:{port}{service.get('path') or '/'}"
