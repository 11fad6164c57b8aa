"""The two ends of a move's way through the network.

On the node that the machine leaves, an entrance: a socket in the launcher's Pod for each channel. On the node that it
moves to, an exit: a port for each channel, open for this one move and for the other node's virt-handler alone. Both
certificates name their nodes, and both sides check the name, so no third node can take part.

QEMU takes the first connection for memory as the one that leads, so they come out in the order in which they went in:
each begins with its number.
"""

from __future__ import annotations

import errno
import itertools
import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from functools import partial

from virt_core.apis.names import MOVE_PORTS
from virt_core.runtime.logs import get_logger
from virt_handler.moves.far import Far
from virt_handler.moves.relay import relay

log = get_logger(__name__)

_BACKLOG = 32
#: Connections of one channel at a time: libvirt has one, memory up to 32 beside its own, a disk some.
MAX_CONNECTIONS = 64
_HANDSHAKE_S = 10.0
_CONNECT_S = 10.0
_TURN_S = 20.0
_NUMBER = struct.Struct("!I")

Serve = Callable[[int, socket.socket], None]
#: A peer that is gone without a word is seen after about half a minute.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4, socket.TCP_USER_TIMEOUT: 30_000}


class _Doors:
    """Listeners, and a thread for each connection that they take."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._stop = threading.Event()
        self._listeners: list[socket.socket] = []
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def _open(self, channel: str, listener: socket.socket, serve: Serve) -> None:
        self._listeners.append(listener)
        name = f"{self._label}-{channel}"
        threading.Thread(target=self._accept, args=(listener, serve, name), name=name, daemon=True).start()

    def _accept(self, listener: socket.socket, serve: Serve, name: str) -> None:
        for number in itertools.takewhile(lambda _: not self._stop.is_set(), itertools.count()):
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # Closed.
            if not self._places.acquire(blocking=False):
                log.warning("too many connections of one move", channel=name)
                connection.close()
                continue
            body = partial(serve, number)
            threading.Thread(target=self._served, args=(connection, body, name), name=name, daemon=True).start()

    def _served(self, connection: socket.socket, serve: Callable[[socket.socket], None], name: str) -> None:
        try:
            with connection:
                serve(connection)
        except OSError as error:
            log.warning("a connection of a move ended", channel=name, error=str(error))
        finally:
            self._places.release()

    def close(self) -> None:
        """What is under way ends too."""
        self._stop.set()
        for listener in self._listeners:
            try:
                listener.shutdown(socket.SHUT_RDWR)  # Wakes who waits for a connection.
            except OSError:
                pass
            listener.close()


class Entrance(_Doors):
    def __init__(
        self,
        context: ssl.SSLContext,
        address: str,
        peer: str,
        listeners: Mapping[str, socket.socket],
        ports: Mapping[str, int],
    ) -> None:
        """`peer` is the name in the certificate of the node that the machine moves to."""
        super().__init__("entrance")
        self._context, self._address, self._peer = context, address, peer
        for channel, listener in listeners.items():
            self._open(channel, listener, partial(self._lead, ports[channel]))

    def _lead(self, port: int, number: int, near: socket.socket) -> None:
        with socket.create_connection((self._address, port), timeout=_CONNECT_S) as plain:
            _tune(plain)
            far = Far(plain, self._context, self._peer)
            far.greet()
            far.say(_NUMBER.pack(number))
            relay(near, far, self._stop)


class Exit(_Doors):
    def __init__(
        self,
        context: ssl.SSLContext,
        address: str,
        peer: str,
        ends: Mapping[str, Callable[[], socket.socket]],
        on_left: Mapping[str, Callable[[], None]] | None = None,
    ) -> None:
        """`ends` connect to the launcher's own sockets; `on_left` hears of each connection that is over, by channel.
        Raises OSError when there is no port."""
        super().__init__("exit")
        self._context, self._peer = context, peer
        on_left = on_left or {}
        self.ports: dict[str, int] = {}
        try:
            for channel, connect in ends.items():
                listener = _listen(address)
                self.ports[channel] = listener.getsockname()[1]
                self._open(channel, listener, partial(self._lead, _Turns(connect), on_left.get(channel)))
        except OSError:
            self.close()
            raise

    def _lead(self, turns: _Turns, on_left: Callable[[], None] | None, _number: int, plain: socket.socket) -> None:
        _tune(plain)
        plain.settimeout(_HANDSHAKE_S)
        far = Far(plain, self._context)
        far.greet()
        if (names := far.names()) != [self._peer]:
            raise PermissionError(f"this way is for {self._peer}, but {', '.join(names) or 'nobody'} came")
        try:
            with turns.take(*_NUMBER.unpack(far.hear(_NUMBER.size))) as near:
                relay(near, far, self._stop)
        finally:
            if on_left is not None:
                on_left()


def _listen(address: str) -> socket.socket:
    """At some port of those that are kept for it. Raises OSError when all of them are taken."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in random.sample(MOVE_PORTS, len(MOVE_PORTS)):
        try:
            return socket.create_server((address, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"all ports from {MOVE_PORTS[0]} to {MOVE_PORTS[-1]} are taken")


class _Turns:
    """Connects for one after the other, by their numbers."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._changed = threading.Condition()
        self._next = 0

    def take(self, number: int) -> socket.socket:
        """One that went in before and does not come was lost on the way, and with it what it was part of; who tries
        again is not to suffer for it."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._next >= number, _TURN_S):
                log.warning("connections of a move were lost on their way", awaited=self._next, came=number)
            try:
                return self._connect()
            finally:
                self._next = max(self._next, number + 1)
                self._changed.notify_all()


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
