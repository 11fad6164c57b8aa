"""Joins a stream with a socket, or with standard input and output, until one side ends.

Both directions have a bounded buffer: who does not read holds up the one who writes, and nobody else.
"""

from __future__ import annotations

import os
import select
import socket
from typing import Protocol

_HIGH_WATER = 256 * 1024
#: A pipe that says it is writable takes this much without blocking.
_PIPE_SAFE = 4096
_READ_SIZE = 65536
#: A websocket cannot be half closed. Who ended its input may still wait for the rest of the answer.
LINGER_S = 1.0


class ByteStream(Protocol):
    unsent: int

    def fileno(self) -> int: ...

    def pending(self) -> bool: ...

    def push(self, data: bytes) -> None: ...

    def flush(self) -> None: ...

    def receive(self) -> bytes | None: ...

    def close(self) -> None: ...


class Ends:
    """The local side: where to read, where to write, and whether writing can block."""

    def __init__(self, source: int, target: int, *, blocking: bool = True) -> None:
        self.source, self.target = source, target
        self.write_size = _PIPE_SAFE if blocking else _READ_SIZE


def relay_socket(stream: ByteStream, sock: socket.socket) -> None:
    """Raises ConnectionError when the stream broke; ends silently when either side closed."""
    sock.setblocking(False)
    relay(stream, Ends(sock.fileno(), sock.fileno(), blocking=False))


def relay(stream: ByteStream, ends: Ends) -> None:
    try:
        _Relay(stream, ends).run()
    finally:
        stream.close()


class _Relay:
    def __init__(self, stream: ByteStream, ends: Ends) -> None:
        self._stream, self._ends = stream, ends
        self._to_local = bytearray()
        self._local_open = True
        self._remote_open = True

    def run(self) -> None:
        while self._remote_open or self._to_local:
            timeout = 0.0 if self._readable_now() else None if self._local_open else LINGER_S
            events = self._poll(timeout)
            if not events and not self._readable_now():
                return  # Nothing more came after the local side had ended.
            if not self._step(events):
                return

    def _readable_now(self) -> bool:
        return self._remote_open and len(self._to_local) < _HIGH_WATER and self._stream.pending()

    def _poll(self, timeout: float | None) -> dict[int, int]:
        wanted: dict[int, int] = {}
        if self._local_open and self._stream.unsent < _HIGH_WATER:
            wanted[self._ends.source] = select.POLLIN
        if self._to_local:
            wanted[self._ends.target] = wanted.get(self._ends.target, 0) | select.POLLOUT
        if self._remote_open:
            reading = select.POLLIN if len(self._to_local) < _HIGH_WATER else 0
            wanted[self._stream.fileno()] = reading | (select.POLLOUT if self._stream.unsent else 0)
        # The reader's end is always watched: who has gone shall not be waited for.
        wanted.setdefault(self._ends.target, 0)
        poll = select.poll()
        for descriptor, mask in wanted.items():
            poll.register(descriptor, mask)
        return dict(poll.poll(None if timeout is None else timeout * 1000))

    def _step(self, events: dict[int, int]) -> bool:
        """False: the local side is gone."""
        gone = select.POLLERR | select.POLLNVAL
        if events.get(self._ends.target, 0) & gone:
            return False
        if self._remote_open:
            self._exchange(events.get(self._stream.fileno(), 0))
        if events.get(self._ends.source, 0) & (select.POLLIN | select.POLLHUP) and self._local_open:
            self._read_local()
        if self._to_local and events.get(self._ends.target, 0) & (select.POLLOUT | select.POLLHUP):
            return self._write_local()
        return not events.get(self._ends.target, 0) & select.POLLHUP or self._local_open

    def _exchange(self, events: int) -> None:
        if events & select.POLLOUT:
            self._stream.flush()
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR) or self._readable_now():
            data = self._stream.receive()
            if data is None:
                self._remote_open = False
            else:
                self._to_local += data

    def _read_local(self) -> None:
        try:
            data = os.read(self._ends.source, _READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # Reset by the local program: its way of closing.
        if not data:
            self._local_open = False
        elif self._remote_open:
            self._stream.push(data)

    def _write_local(self) -> bool:
        try:
            written = os.write(self._ends.target, bytes(self._to_local[: self._ends.write_size]))
        except BlockingIOError:
            return True
        except OSError:
            return False
        del self._to_local[:written]
        return True
