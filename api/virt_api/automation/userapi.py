"""The API server as the caller sees it: every request carries the caller's own token and nothing of ours.

So RBAC, admission and audit hold for the caller, and virt-api needs no right to write or to impersonate. Our own client
certificate must stay out of it: the API server would take it before it looks at the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from virt_core import __version__
from virt_core.kube.connect import Connection
from virt_core.kube.errors import ApiError, Unreachable, error_from

_TIMEOUT_S = 30.0
_CONNECT_S = 5.0
_WATCH_SLACK_S = 30.0
_KEEPALIVE_S = 60.0
_ERROR_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"


class UserApi:
    """Lives in the event loop. Of `connection` only the address and the trust in the server are used."""

    def __init__(self, connection: Connection) -> None:
        self._server = connection.server
        self._hostname = connection.tls_server_name or None
        bare = Connection(server=connection.server, ca_pem=connection.ca_pem, insecure=connection.insecure)
        self._ssl = bare.ssl_context()
        self._session: aiohttp.ClientSession | None = None

    async def send(self, token: str, call: Call) -> bytes:
        """The answer's body. Raises ApiError."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S, sock_connect=_CONNECT_S)
        try:
            async with self._request(token, call, timeout) as response:
                body = await response.read()
        except TimeoutError as error:
            message = f"no answer from the API server {self._server} within {_TIMEOUT_S:.0f} s"
            raise ApiError(504, "Timeout", message) from error
        except aiohttp.ClientError as error:
            raise Unreachable(f"no answer from the API server {self._server}: {error}") from error
        if response.status >= 400:
            raise error_from(response.status, body)
        return body

    async def stream(self, token: str, call: Call, *, quiet_s: float) -> AsyncGenerator[bytes, None]:
        """The answer as it comes; nothing for `quiet_s` and a bit counts as broken. Raises ApiError."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=quiet_s + _WATCH_SLACK_S)
        try:
            async with self._request(token, call, timeout) as response:
                if response.status >= 400:
                    raise error_from(response.status, await response.content.read(_ERROR_LIMIT))
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise Unreachable(f"the watch at the API server {self._server} broke: {error!r}") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _request(self, token: str, call: Call, timeout: aiohttp.ClientTimeout) -> aiohttp.client._RequestContextManager:
        headers = {"Authorization": f"Bearer {token}"}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        return self._open().request(
            call.method,
            URL(self._server + call.path).with_query(dict(call.query)),
            data=call.body,
            headers=headers,
            timeout=timeout,
            ssl=self._ssl,
            server_hostname=self._hostname,
            allow_redirects=False,
        )

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
                # Users share the connections, so nothing may stick to them.
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "application/json", "User-Agent": f"virt-api-automation/{__version__}"},
                trust_env=False,
            )
        return self._session
