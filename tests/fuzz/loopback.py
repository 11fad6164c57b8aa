"""An application of aiohttp on a socket of this machine, and raw requests to it: no client mends what is broken."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

#: Whoever has not answered by then hangs.
ANSWER_S = 60.0


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes


class Loopback:
    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self._loop, self._port = loop, port

    def send(self, request: bytes) -> Reply:
        """The bytes as they are; the answer up to the end of the connection."""
        return self._loop.run_until_complete(asyncio.wait_for(self._send(request), ANSWER_S))

    async def _send(self, request: bytes) -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 26)
        try:
            writer.write(request)
            status, head = await _head(reader)
            while status == 100:
                status, head = await _head(reader)
            return Reply(status, await _body(reader, status, head))
        finally:
            writer.close()


async def _head(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head


async def _body(reader: asyncio.StreamReader, status: int, head: bytes) -> bytes:
    """A stream that was opened is not waited for, and a connection that stays open is not waited out."""
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    if status == 101 or length is None:
        return b""
    try:
        return await reader.readexactly(int(length[1]))
    except asyncio.IncompleteReadError as cut:  # HEAD has a length and no body.
        return cut.partial


@contextmanager
def served(build: Callable[[], Any]) -> Iterator[Loopback]:
    """`build` makes the application inside the loop, and a coroutine function that closes what it holds."""
    loop = asyncio.new_event_loop()
    app, close = loop.run_until_complete(_built(build))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    loop.run_until_complete(runner.setup())
    loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
    try:
        yield Loopback(loop, runner.addresses[0][1])
    finally:
        loop.run_until_complete(runner.cleanup())
        loop.run_until_complete(close())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _built(build: Callable[[], Any]) -> Any:
    return build()
