"""Takes connections in, as far as there is room, and shows out who takes too long."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from functools import partial

from virt_api.serving.connection import Connection
from virt_api.serving.crowd import Crowd
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Counter, Gauge

log = get_logger(__name__)

CONNECTIONS = Gauge("virt_api_connections", "Open connections to the HTTPS port.", ())
SHOWN_OUT = Counter("virt_api_connections_ended_total", "Connections that we ended, by reason.", ("reason",))

_SWEEP_S = 1.0
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: asyncio gives each TLS connection a buffer of this size at once, 256 KiB unless told; a record has 16.
SSLProtocol.max_size = 32 << 10


class Listener:
    """`make` gives the protocol that speaks HTTP."""

    def __init__(
        self, listening: socket.socket, tls: ssl.SSLContext, crowd: Crowd, make: Callable[[], asyncio.Protocol]
    ) -> None:
        self._socket, self._tls, self._crowd, self._make = listening, tls, crowd, make
        self._welcomes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Until it is cancelled. Then nobody comes in any more; who is in stays."""
        self._socket.setblocking(False)
        sweeping = asyncio.create_task(self._sweep())
        try:
            while True:
                await self._accept()
        finally:
            sweeping.cancel()
            for welcome in self._welcomes:
                welcome.cancel()
            self._socket.close()

    async def _accept(self) -> None:
        try:
            accepted, peer = await self._loop.sock_accept(self._socket)
        except OSError as error:
            if error.errno in _OUT_OF_DESCRIPTORS:
                log.error("no connection can be accepted", error=str(error))
                await asyncio.sleep(_SWEEP_S)
            return
        address = str(peer[0])
        if not self._crowd.make_room(address):
            SHOWN_OUT.inc("full")
            accepted.close()
            return
        connection = Connection(self._crowd, address, self._loop.time)
        self._crowd.add(connection)
        CONNECTIONS.set(len(self._crowd))
        welcome = self._loop.create_task(self._welcome(accepted, connection))
        connection.abandon = welcome.cancel
        self._welcomes.add(welcome)
        welcome.add_done_callback(partial(self._welcomed, accepted, connection))

    async def _welcome(self, accepted: socket.socket, connection: Connection) -> None:
        """The handshake. Who fails at it, e.g. a port scanner, is nobody's mistake of ours."""
        limits = self._crowd.limits
        connection.serve(self._make())
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=limits.handshake_s,
                ssl_shutdown_timeout=limits.goodbye_s,
            )
        except OSError as error:
            self._crowd.remove(connection)
            log.debug("no handshake", peer=connection.address, error=str(error))

    def _welcomed(self, accepted: socket.socket, connection: Connection, welcome: asyncio.Task[None]) -> None:
        self._welcomes.discard(welcome)
        if welcome.cancelled():
            self._crowd.remove(connection)
        if not connection.is_served():
            accepted.close()  # It was shown out before its handshake began, so nobody else will.

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            for guest in self._crowd.overdue(self._loop.time()):
                SHOWN_OUT.inc("late")
                guest.show_out()
            CONNECTIONS.set(len(self._crowd))
