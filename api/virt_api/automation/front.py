"""The port of the gRPC automation: accepts in gRPC's place, which bounds all connections but not those of one address.

Bytes go on as they are, TLS and all, to the gRPC server, which listens on the loopback.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from contextlib import suppress

from virt_api.automation.shares import Share, address_of
from virt_core.runtime.health import split_address

CONNECTIONS = Share(512, 64, "connections")
INNER_HOST = "127.0.0.1"
#: What is read ahead of a receiver that is slow.
_BUFFER = 16 << 10
_BACKLOG = 256


def bound(address: str) -> socket.socket:
    """Raises OSError with a sentence, ValueError."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server(
            (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=family is socket.AF_INET6 and host == "::"
        )
    except OSError as error:
        raise OSError(f"cannot listen on {address}: {os.strerror(error.errno or 0)}") from error


class Front:
    """Lives in the event loop."""

    def __init__(self, share: Share = CONNECTIONS) -> None:
        self._share = share
        #: In the order of their coming: whose they are.
        self._open: dict[asyncio.StreamWriter, str] = {}
        #: By the port from which we reach the server behind.
        self._whose: dict[str, str] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, listener: socket.socket, inner_port: int) -> int:
        """Passes on what comes in. The port."""

        async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(reader, writer, inner_port)

        self._server = await asyncio.start_server(met, sock=listener, limit=_BUFFER)
        return int(listener.getsockname()[1])

    def address_of(self, peer: str) -> str:
        """Of whoever is behind the connection that gRPC sees."""
        return self._whose.get(peer.rpartition(":")[2]) or address_of(peer)

    def refuse(self) -> None:
        """Nobody new."""
        if self._server is not None:
            self._server.close()

    def stop(self) -> None:
        self.refuse()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inner_port: int) -> None:
        address = str(writer.get_extra_info("peername")[0])
        if not self._has_room(address):
            writer.transport.abort()
            return
        self._open[writer] = address
        try:
            with suppress(OSError):
                await self._pass_on(reader, writer, inner_port, address)
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _has_room(self, address: str) -> bool:
        """When there are too many in all, whoever has the most loses the oldest."""
        taken = Counter(self._open.values())
        if taken[address] >= self._share.each:
            return False
        if len(self._open) >= self._share.total:
            [(most, _)] = taken.most_common(1)
            oldest = next(writer for writer, whose in self._open.items() if whose == most)
            del self._open[oldest]
            oldest.transport.abort()
        return True

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inner_port: int, address: str
    ) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(INNER_HOST, inner_port, limit=_BUFFER)
        port = str(inner_writer.get_extra_info("sockname")[1])
        self._whose[port] = address
        ways = [asyncio.create_task(_pump(reader, inner_writer)), asyncio.create_task(_pump(inner_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            del self._whose[port]
            inner_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_BUFFER):
        writer.write(data)
        await writer.drain()
