"""The port of the gRPC automation: accepts in gRPC's place, which bounds all connections but not those of one address.

Bytes go on as they are, TLS and all, to the gRPC server, which listens in a directory that only we may enter.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import tempfile
from collections import Counter
from contextlib import suppress

from virt_api.automation.shares import Share, address_of
from virt_core.runtime.files import socket_path
from virt_core.runtime.health import split_address

CONNECTIONS = Share(512, 64, "connections")
#: What the socket of a connection to the server behind is called there; by it gRPC tells them apart.
_NAME = "virt-api-automation"
_SOCKET = "automation-sock"
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
        #: By the name of the socket from which we reach the server behind.
        self._whose: dict[str, str] = {}
        self._numbers = itertools.count()
        #: Ours alone; the server behind listens in it.
        self._place = tempfile.TemporaryDirectory(prefix="virt-api-")
        self._directory = os.open(self._place.name, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.inner = f"{socket_path(self._directory)}/{_SOCKET}"
        self._server: asyncio.Server | None = None

    async def listen(self, listener: socket.socket) -> int:
        """Passes on what comes in. The port."""

        async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(reader, writer)

        self._server = await asyncio.start_server(met, sock=listener, limit=_BUFFER)
        return int(listener.getsockname()[1])

    def address_of(self, peer: str) -> str:
        """Of whoever is behind the connection that gRPC sees."""
        return self._whose.get(peer.rpartition(":")[2]) or address_of(peer)  # unix-abstract:NAME

    def refuse(self) -> None:
        """Nobody new."""
        if self._server is not None:
            self._server.close()

    def stop(self) -> None:
        self.refuse()
        for writer in list(self._open):
            writer.transport.abort()
        os.close(self._directory)
        self._place.cleanup()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = str(writer.get_extra_info("peername")[0])
        if not self._has_room(address):
            writer.transport.abort()
            return
        self._open[writer] = address
        try:
            with suppress(OSError):
                await self._pass_on(reader, writer, address)
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

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        name = f"{_NAME}-{os.getpid()}-{next(self._numbers)}"
        inner = socket.socket(socket.AF_UNIX)
        inner.bind(f"\0{name}")
        inner.setblocking(False)
        await asyncio.get_running_loop().sock_connect(inner, self.inner)
        inner_reader, inner_writer = await asyncio.open_unix_connection(sock=inner, limit=_BUFFER)
        self._whose[name] = address
        ways = [asyncio.create_task(_pump(reader, inner_writer)), asyncio.create_task(_pump(inner_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            del self._whose[name]
            inner_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_BUFFER):
        writer.write(data)
        await writer.drain()
