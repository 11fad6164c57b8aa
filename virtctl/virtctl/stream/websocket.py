"""The websocket to a guest: raw bytes both ways.

wsproto speaks the protocol, from the handshake to the last frame. The socket is ours and never blocks, so that a slow
reader on one side holds up nothing but its own direction.
"""

from __future__ import annotations

import select
import ssl
import time
from collections import deque

from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping
from wsproto.frame_protocol import CloseReason

from virt_core.apis.names import SUBPROTOCOL_PLAIN
from virt_core.kube.connect import Connection
from virtctl.stream.handshake import HandshakeRefused, open_websocket

__all__ = ["HandshakeRefused", "Stream"]

#: Nobody sends us more at once; a longer message is a broken or hostile server.
LIMIT = 16 * 1024 * 1024
_SEND_S = 10.0
_READ_SIZE = 65536
#: TLS wants a refused write repeated with the same bytes, so writes are cut before they are tried.
_WRITE_SIZE = 16384
#: In order: with the code for it, or with no code at all.
_IN_ORDER = (CloseReason.NORMAL_CLOSURE, CloseReason.NO_STATUS_RCVD, CloseReason.SERVICE_RESTART)


class Stream:
    """For one thread. Poll `fileno` for reading, and for writing while `unsent` is not 0."""

    def __init__(self, connection: Connection, path: str, subprotocol: str = SUBPROTOCOL_PLAIN) -> None:
        self.reason = ""
        #: The other side went away, and can be had again.
        self.moved = False
        self._socket, self._protocol = open_websocket(connection, path, subprotocol)
        self._socket.setblocking(False)
        #: What came with the answer to the handshake is there already.
        self._received: deque[Event] = deque(self._protocol.events())
        self._parts = bytearray()
        self._outgoing: deque[bytes] = deque()
        self.unsent = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def pending(self) -> bool:
        """Something to `receive` that the descriptor does not show: parsed, or decrypted by TLS already."""
        tls = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        return bool(self._received) or tls

    def push(self, data: bytes) -> None:
        """Puts one message into the queue and sends what goes out at once."""
        self._queue(BytesMessage(data))
        self.flush()

    def send(self, data: bytes) -> None:
        """As `push`, and waits until it is out. Raises ConnectionError when nobody takes it for 10 s."""
        self.push(data)
        deadline = time.monotonic() + _SEND_S
        while self.unsent:
            if time.monotonic() >= deadline:
                raise self._broken(TimeoutError(f"nothing could be sent for {_SEND_S:.0f} s"))
            select.select([], [self], [], 0.5)
            self.flush()

    def flush(self) -> None:
        try:
            while self._outgoing:
                sent = self._socket.send(self._outgoing[0])
                self.unsent -= sent
                rest = self._outgoing.popleft()[sent:]
                if rest:
                    self._outgoing.appendleft(rest)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return
        except OSError as error:
            raise self._broken(error) from error

    def receive(self) -> bytes | None:
        """The next message, or nothing yet (b""); None when the other side closed in order. Raises ConnectionError."""
        if not self._received:
            self._read()
        while self._received:
            event = self._received.popleft()
            if isinstance(event, BytesMessage) and self._whole(event):
                message, self._parts = bytes(self._parts), bytearray()
                return message
            if isinstance(event, Ping):
                self._queue(event.response())
                self.flush()
            elif isinstance(event, CloseConnection):
                self._closed(event)
                return None
        return b""

    def close(self) -> None:
        """Says goodbye and does not wait for an answer."""
        try:
            self._queue(CloseConnection(CloseReason.NORMAL_CLOSURE))
            self.flush()
        except ConnectionError:
            pass  # It is gone already, which is what we want.
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            raise self._broken(error) from error
        if not data:
            raise self._broken(ConnectionError("the server ended the connection"))
        self._protocol.receive_data(data)
        self._received.extend(self._protocol.events())

    def _whole(self, event: BytesMessage) -> bool:
        """Long messages come in parts. Bounded: more than LIMIT is an error."""
        self._parts += event.data
        if len(self._parts) > LIMIT:
            raise self._broken(ConnectionError(f"a message of more than {LIMIT} bytes is too long"))
        return event.message_finished and event.frame_finished

    def _queue(self, event: Event) -> None:
        """After either side's goodbye nothing is sent but the answer to the other side's."""
        state = self._protocol.state
        answering = state is ConnectionState.REMOTE_CLOSING and isinstance(event, CloseConnection)
        if state is not ConnectionState.OPEN and not answering:
            return
        data = self._protocol.send(event)
        self._outgoing.extend(data[at : at + _WRITE_SIZE] for at in range(0, len(data), _WRITE_SIZE))
        self.unsent += len(data)

    def _broken(self, error: Exception) -> ConnectionError:
        self.reason = str(error)
        return ConnectionError(self.reason)

    def _closed(self, event: CloseConnection) -> None:
        """Also what wsproto makes of frames that no server may send: it says goodbye with what is wrong."""
        self.reason = event.reason or ""
        self.moved = event.code == CloseReason.SERVICE_RESTART
        self._queue(event.response())
        if event.code not in _IN_ORDER:
            raise ConnectionError(self.reason or f"websocket close code {event.code}")
