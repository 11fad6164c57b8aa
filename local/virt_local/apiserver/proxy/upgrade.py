"""Passes an upgraded connection (websocket) through, byte for byte, in both directions.

The request goes to the other server as it came; when that answers 101, both sides talk to each other and we only move
bytes, so subprotocols, fragments and close codes stay as they are.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from virt_core.runtime.logs import get_logger
from virt_local.apiserver import errors

log = get_logger("virt-local.apiserver.proxy")

_CONNECT_S = 10.0
_HEAD_S = 30.0
_HEAD_LIMIT = 64 * 1024
_BODY_S = 5.0
_CHUNK = 64 * 1024
_BUFFER = 256 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect, what to ask for, and how to trust the answer."""

    host: str
    port: int
    server_name: str
    tls: ssl.SSLContext
    path: str


def is_upgrade(request: web.Request) -> bool:
    return "upgrade" in request.headers.get("Connection", "").lower() and "Upgrade" in request.headers


async def pass_through(request: web.Request, target: Target, headers: CIMultiDict[str]) -> web.StreamResponse:
    """Serves the request to its end. Raises ApiError while nothing was sent to the client yet."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(
                target.host, target.port, ssl=target.tls, server_hostname=target.server_name, limit=_HEAD_LIMIT
            )
    except (OSError, TimeoutError) as err:
        raise errors.unavailable(f"error trying to reach service: {err or 'timed out'}") from err
    try:
        writer.write(_head(request, target, headers))
        head = await _read_head(reader)
        await _send(request, head)
        if head.split(b" ", 2)[1] == b"101":
            await _join(request, reader, writer)
        else:
            await _finish_refusal(request, reader, head)
    finally:
        await _close(writer)
        if request.transport is not None:
            request.transport.close()
    return _Sent()


def _head(request: web.Request, target: Target, headers: CIMultiDict[str]) -> bytes:
    lines = [f"{request.method} {target.path} HTTP/1.1", f"Host: {target.server_name}:{target.port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(_HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as err:
        raise errors.unavailable("the other server did not answer the upgrade") from err
    if len(head.split(b" ", 2)) < 3:
        raise errors.unavailable("the other server did not answer with HTTP")
    return head


async def _send(request: web.Request, data: bytes) -> None:
    if request.transport is None or request.transport.is_closing():
        raise ConnectionResetError("the client has gone")
    request.transport.write(data)
    await request.writer.drain()


async def _finish_refusal(request: web.Request, reader: asyncio.StreamReader, head: bytes) -> None:
    """The answer's body, when the other server refused to upgrade. It is short, so it comes at once or not at all."""
    length = _content_length(head)
    try:
        async with asyncio.timeout(_BODY_S):
            body = await (reader.readexactly(length) if length is not None else reader.read(_BUFFER))
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        return
    await _send(request, body)


def _content_length(head: bytes) -> int | None:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return min(int(value), _BUFFER)
    return None


class _Uplink:
    """What aiohttp feeds the client's bytes to, in the place where its own websocket reader would sit."""

    def __init__(self, client: asyncio.Transport, server: asyncio.StreamWriter) -> None:
        self._client = client
        self._server = server
        self._draining: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._server.write(data)
        if self._server.transport.get_write_buffer_size() > _BUFFER and self._draining is None:
            self._client.pause_reading()
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        return False, b""

    async def _drain(self) -> None:
        try:
            await self._server.drain()
        except OSError:
            self.ended.set()
        finally:
            self._draining = None
            if not self._client.is_closing():
                self._client.resume_reading()

    def feed_eof(self) -> None:
        self.ended.set()

    def set_exception(self, *_: Any) -> None:
        self.ended.set()


async def _join(request: web.Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    client = request.transport
    if not isinstance(client, asyncio.Transport):
        raise ConnectionResetError("the client has gone")
    uplink = _Uplink(client, writer)
    request.protocol.set_parser(uplink)  # type: ignore[arg-type]
    down = asyncio.create_task(_down(request, reader))
    up = asyncio.create_task(uplink.ended.wait())
    try:
        await asyncio.wait((down, up), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (down, up):
            task.cancel()
        await asyncio.gather(down, up, return_exceptions=True)


async def _down(request: web.Request, reader: asyncio.StreamReader) -> None:
    try:
        while data := await reader.read(_CHUNK):
            await _send(request, data)
    except OSError as err:
        log.debug("a passed-through connection broke", error=str(err))


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        async with asyncio.timeout(1):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass  # It is gone either way.


class _Sent(web.StreamResponse):
    """Tells aiohttp that everything was said already."""

    async def prepare(self, request: Any) -> None:  # noqa: ARG002
        return None

    async def write_eof(self, data: Any = b"") -> None:  # noqa: ARG002
        return None
