"""Calls of subresources.kubevirt.io as any HTTP client makes them: plain requests and websockets, as whoever one is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from virt_core.kube.connect import Connection, load_connection

from .conftest import Space

T = TypeVar("T")
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Subresources:
    """Of one namespace. Without a token it is the administrator, with an empty one nobody."""

    def __init__(self, space: Space, token: str | None = None) -> None:
        self._connection = load_connection(space.engine.kubeconfig)
        if token is not None:
            known = self._connection
            self._connection = Connection(server=known.server, ca_pem=known.ca_pem, token=token)
        self._space = space

    def url(self, path: str, *, version: str = "v1") -> str:
        root = f"{self._connection.server}/apis/subresources.kubevirt.io/{version}"
        return f"{root}/namespaces/{self._space.namespace}/{path}"

    def call(self, method: str, path: str, body: Any = None, *, within_s: float = DEADLINE_S) -> Answer:
        data = None if body is None else json.dumps(body)

        async def run() -> Answer:
            async with self._session() as session, session.request(method, self.url(path), data=data) as response:
                return Answer(response.status, await response.read())

        return asyncio.run(asyncio.wait_for(run(), within_s))

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def put(self, path: str, body: Any = None) -> Answer:
        return self.call("PUT", path, body)

    def talk(self, path: str, conversation: Callable[[aiohttp.ClientWebSocketResponse], Awaitable[T]]) -> T:
        """Opens a websocket and holds a conversation on it. Raises aiohttp.WSServerHandshakeError."""

        async def run() -> T:
            async with self.connected(path) as socket:
                return await conversation(socket)

        return asyncio.run(asyncio.wait_for(run(), DEADLINE_S))

    @asynccontextmanager
    async def connected(self, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with (
            self._session() as session,
            session.ws_connect(self.url(path), protocols=("plain.kubevirt.io",)) as socket,
        ):
            yield socket

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._connection.ssl_context())
        return aiohttp.ClientSession(connector=connector, headers=self._connection.headers())


async def receive(socket: aiohttp.ClientWebSocketResponse, count: int) -> bytes:
    """At least so many bytes."""
    seen = b""
    while len(seen) < count:
        message = await socket.receive(timeout=30)
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise AssertionError(f"the stream ended after {seen!r}: {message}")
        seen += message.data
    return seen
