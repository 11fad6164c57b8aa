"""The gate in front of the notify servers: who comes in, how many, how fast.

gRPC's own listener takes whoever connects, as often as they like, and does not say who it is. So one thread accepts in
its place, for all Pods: it lets in processes of the Pod that a door is for, a few at a time, and passes their bytes on
to the gRPC server of that Pod, which listens in a directory that only we may enter. Who sends too much is not read from
for a while, and who connects too often is not accepted: both wait in the kernel, at their own cost. A door that is in
trouble never troubles another, nor the process: every error ends one connection.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from virt_core.runtime.clock import Clock
from virt_core.runtime.files import private_directory, socket_path
from virt_core.runtime.logs import get_logger
from virt_handler.loop.rates import TokenBucket

log = get_logger(__name__)

_CHUNK = 64 * 1024
#: How often slow things are looked at: idle connections, and who may send or come in again.
_TICK_S = 1.0
_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT

#: Whether this peer may come in.
Admits = Callable[[socket.socket], bool]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one Pod. Its launcher needs one connection, seldom, and sends some kilobytes in its life."""

    connections: int = 4
    connect_burst: int = 16
    connects_per_second: float = 1.0
    #: A message may have half of it.
    bytes_burst: int = 512 * 1024
    bytes_per_second: float = 16 * 1024
    #: Of one who says nothing at all. A launcher that has something to say later connects anew.
    idle_s: float = 90.0


class _Side:
    """One end of a connection that is passed on: its socket, and what is still to be written to it."""

    def __init__(self, line: _Line, end: socket.socket) -> None:
        self.line, self.socket, self.pending = line, end, b""
        self.mask = 0


class _Line:
    """A connection from a Pod's process, and the one to the gRPC server that belongs to it."""

    def __init__(self, door: Door, outer: socket.socket, inner: socket.socket, now: float) -> None:
        self.door, self.active = door, now
        self.outer, self.inner = _Side(self, outer), _Side(self, inner)

    def other(self, side: _Side) -> _Side:
        return self.inner if side is self.outer else self.outer

    def mask(self, side: _Side) -> int:
        """What is not read slows its sender down."""
        reads = not self.other(side).pending and (side is self.inner or self.door.bytes.left() >= 1)
        return (_READ if reads else 0) | (_WRITE if side.pending else 0)


class Door:
    """The listener of one Pod. Belongs to the gate that opened it."""

    def __init__(self, listener: socket.socket, inner: str, admits: Admits, clock: Clock, limits: Limits) -> None:
        self.listener, self.inner, self.admits, self._limits = listener, inner, admits, limits
        self.connects = TokenBucket(clock, burst=limits.connect_burst, per_second=limits.connects_per_second)
        self.bytes = TokenBucket(clock, burst=limits.bytes_burst, per_second=limits.bytes_per_second)
        self.lines: set[_Line] = set()
        self.deaf = False
        self.complained = False

    def has_room(self) -> bool:
        return len(self.lines) < self._limits.connections and self.connects.left() >= 1

    def is_idle(self, line: _Line, now: float) -> bool:
        return now - line.active >= self._limits.idle_s


class Gate:
    def __init__(self, directory: str, clock: Clock, limits: Limits | None = None) -> None:
        """`directory` is for the sockets of the servers behind."""
        private_directory(directory)
        self.directory = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in os.listdir(directory):
            os.unlink(name, dir_fd=self.directory)  # Of a process of ours that was killed.
        self._clock, self._limits = clock, limits or Limits()
        self._lock = threading.Lock()
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, _READ)
        self._doors: dict[int, Door] = {}
        self._sides: dict[int, _Side] = {}
        self._stopping = False
        self._numbers = itertools.count()

    def inner_name(self, pod_uid: str) -> str:
        """Never twice the same: gRPC removes the socket of a stopped server when it gets round to it."""
        return f"{pod_uid}.{next(self._numbers)}"

    def open(self, listener: socket.socket, inner: str, admits: Admits) -> Door:
        """Takes over a listening socket. `inner` is the name of the server's socket in our directory."""
        listener.setblocking(False)
        path = f"{socket_path(self.directory)}/{inner}"
        door = Door(listener, path, admits, self._clock, self._limits)
        with self._lock:
            self._doors[listener.fileno()] = door
            self._epoll.register(listener, _READ)
        return door

    def close(self, door: Door) -> None:
        with self._lock:
            for line in list(door.lines):
                self._end(line)
            self._doors.pop(door.listener.fileno(), None)
            door.listener.close()

    def stop(self) -> None:
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def run(self, _stop: threading.Event) -> None:
        """Until `stop` is called: a thread in `poll` does not hear of an Event."""
        looked = self._clock.monotonic()
        while not self._stopping:
            found = self._epoll.poll(_TICK_S if self._is_ticking() else None)
            with self._lock:
                for fd, events in found:
                    self._handle(fd, events)
                if self._clock.monotonic() - looked >= _TICK_S:
                    looked = self._clock.monotonic()
                    self._tick(looked)

    def _is_ticking(self) -> bool:
        with self._lock:
            return bool(self._sides) or any(door.deaf for door in self._doors.values())

    def _handle(self, fd: int, events: int) -> None:
        if (door := self._doors.get(fd)) is not None:
            self._accept(door)
        elif (side := self._sides.get(fd)) is not None:
            self._move(side, events)

    def _tick(self, now: float) -> None:
        for door in self._doors.values():
            if door.deaf and door.has_room():
                self._listen(door, True)
            for line in list(door.lines):
                if door.is_idle(line, now):
                    self._end(line)
                else:
                    self._update(line)

    # Coming in

    def _accept(self, door: Door) -> None:
        try:
            while door.has_room():
                outer, _ = door.listener.accept()
                door.connects.spend(1)
                self._admit(door, outer)
        except BlockingIOError:
            return
        except OSError as error:
            # No descriptors left, most likely: others need them more. The tick tries again.
            self._complain(door, f"a connection cannot be taken: {error}")
        self._listen(door, False)

    def _listen(self, door: Door, listens: bool) -> None:
        door.deaf = not listens
        self._epoll.modify(door.listener, _READ if listens else 0)

    def _admit(self, door: Door, outer: socket.socket) -> None:
        inner = None
        try:
            if not door.admits(outer):
                self._complain(door, "somebody who is not of the Pod connected to its notify socket")
                outer.close()
                return
            inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            inner.setblocking(False)
            inner.connect(door.inner)
        except Exception as error:
            # Of whatever kind: this thread is everybody's.
            outer.close()
            if inner is not None:
                inner.close()
            self._complain(door, f"a connection was dropped: {error}")
            return
        outer.setblocking(False)
        self._begin(_Line(door, outer, inner, self._clock.monotonic()))

    def _begin(self, line: _Line) -> None:
        line.door.lines.add(line)
        for side in (line.outer, line.inner):
            self._sides[side.socket.fileno()] = side
            self._epoll.register(side.socket, 0)
        self._update(line)

    def _complain(self, door: Door, sentence: str) -> None:
        """Once: a log is filled as easily as a table of descriptors."""
        if not door.complained:
            door.complained = True
            log.warning(sentence, socket=door.inner.rpartition("/")[2])

    # Passing on

    def _move(self, side: _Side, events: int) -> None:
        line = side.line
        try:
            if side.pending:
                self._write(side)
            if line.mask(side) & _READ:
                self._read(side)
            elif events & (select.EPOLLHUP | select.EPOLLERR):
                # Gone with what it had no leave to say.
                raise EOFError
        except BlockingIOError:
            pass
        except (OSError, EOFError):
            self._end(line)
            return
        self._update(line)

    def _read(self, side: _Side) -> None:
        line = side.line
        door = line.door
        data = side.socket.recv(_CHUNK if side is line.inner else min(_CHUNK, int(door.bytes.left())))
        if not data:
            raise EOFError
        if side is line.outer:
            door.bytes.spend(len(data))
            line.active = self._clock.monotonic()
        other = line.other(side)
        other.pending = data
        self._write(other)

    def _write(self, side: _Side) -> None:
        side.pending = side.pending[side.socket.send(side.pending) :]

    def _update(self, line: _Line) -> None:
        for side in (line.outer, line.inner):
            mask = line.mask(side)
            if mask != side.mask:
                side.mask = mask
                self._epoll.modify(side.socket, mask)

    def _end(self, line: _Line) -> None:
        door = line.door
        door.lines.discard(line)
        for side in (line.outer, line.inner):
            self._sides.pop(side.socket.fileno(), None)
            side.socket.close()
        if door.deaf and door.has_room():
            self._listen(door, True)
