"""Bytes between a socket of this node and one of another node, encrypted on the way. One thread for each connection.

OpenSSL does not let two threads use one connection, so neither direction ever blocks: what cannot be passed on now
waits in one piece, and nothing more is read until it is gone. So a slow reader slows the writer down.
"""

from __future__ import annotations

import select
import socket
from abc import ABC, abstractmethod
from typing import Protocol

from virt_handler.moves.far import CHUNK, Far

#: Asleep no longer than this, so that a stop is seen.
_WAKE_MS = 1000
_NOTHING = memoryview(b"")


class Ended(Protocol):
    def is_set(self) -> bool: ...


class _Way(ABC):
    """One direction."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.waiting = _NOTHING
        self.over = False
        self.passed = 0

    @abstractmethod
    def fetch(self) -> memoryview | None:
        """What there is to pass on; None: the source has ended. Raises BlockingIOError."""

    def advance(self) -> bool:
        """Whether anything was done. Raises OSError when an end is gone."""
        if self.over and not self.waiting:
            return False
        try:
            if not self.waiting:
                found = self.fetch()
                self.over, self.waiting = found is None, found or _NOTHING
            return self._send()
        except BlockingIOError:
            return False

    def _send(self) -> bool:
        if self.waiting:
            sent = self.sink.send(self.waiting)
            self.waiting, self.passed = self.waiting[sent:], self.passed + sent
        return True


class _Out(_Way):
    def __init__(self, near: socket.socket, far: Far) -> None:
        super().__init__(near, far.socket)
        self._far = far
        self._buffer = memoryview(bytearray(CHUNK))

    def fetch(self) -> memoryview | None:
        size = self.source.recv_into(self._buffer)
        return memoryview(self._far.seal(self._buffer[:size])) if size else None


class _In(_Way):
    def __init__(self, near: socket.socket, far: Far) -> None:
        super().__init__(far.socket, near)
        self._far = far

    def fetch(self) -> memoryview | None:
        return self._far.receive()


def relay(near: socket.socket, far: Far, stop: Ended) -> int:
    """Until either side has ended and what it said last is passed on, or until the stop. The bytes of both ways."""
    ways = (_Out(near, far), _In(near, far))
    for end in (near, far.socket):
        end.setblocking(False)
    try:
        while not stop.is_set() and not any(way.over and not way.waiting for way in ways):
            moved = [way.advance() for way in ways]  # Each in its turn, however busy the other is.
            if not any(moved):
                _sleep(ways)
    except OSError:
        pass  # An end that is gone is an end.
    return sum(way.passed for way in ways)


def _sleep(ways: tuple[_Way, ...]) -> None:
    poll, wanted = select.poll(), dict[int, int]()
    for way in ways:
        if way.waiting:
            wanted[way.sink.fileno()] = wanted.get(way.sink.fileno(), 0) | select.POLLOUT
        elif not way.over:
            wanted[way.source.fileno()] = wanted.get(way.source.fileno(), 0) | select.POLLIN
    for fd, events in wanted.items():
        poll.register(fd, events)
    poll.poll(_WAKE_MS)
