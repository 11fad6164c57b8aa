"""Calls a webhook over HTTPS: connections stay open, certificates are checked against the webhook's own bundle."""

from __future__ import annotations

import asyncio
import base64
import ssl
from urllib.parse import urlsplit

import aiohttp

from virt_local.apiserver.security.endpoints import NoEndpoint, Resolver
from virt_local.apiserver.security.webhooks.match import Webhook

MAX_ANSWER_BYTES = 4 * 1024 * 1024
_KEEP_ALIVE_S = 60
_CONTEXT_LIMIT = 64


class CallFailed(Exception):
    """The webhook could not be asked; the text says why, as the real API server would."""


class WebhookClient:
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
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
        url, server_name = self._target(config)
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Host": urlsplit(shown).netloc}
        async with self._session.post(
            f"{url}?timeout={webhook.timeout_s}s",
            data=body,
            headers=headers,
            ssl=self._context(str(config.get("caBundle") or "")),
            server_hostname=server_name,
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

    def _target(self, config: dict[str, object]) -> tuple[str, str | None]:
        """(URL to connect to, name in the certificate)."""
        service = config.get("service")
        if not isinstance(service, dict):
            return str(config.get("url", "")), None
        endpoint = self._resolver.resolve(service["namespace"], service["name"], int(service.get("port") or 443))
        return f"{endpoint.base}{service.get('path') or '/'}", endpoint.server_name

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
