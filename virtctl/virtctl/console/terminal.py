"""The terminal side: raw keys to the guest, the guest's bytes to the screen, ^] to leave, and the settings put back."""

from __future__ import annotations

import enum
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

ESCAPE = b"\x1d"  # ^]
#: Save the cursor, let the scroll region be the whole window again, restore the cursor. Goes to our own terminal only:
#: a serial line has no way to tell the guest, and any key we made up for it could hit the wrong program.
_REDRAW = b"\x1b7\x1b[r\x1b8"


class Ended(enum.Enum):
    LEFT = "left"
    CLOSED = "closed"
    LOST = "lost"


class ByteStream(Protocol):
    def fileno(self) -> int: ...

    def pending(self) -> bool: ...

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes | None: ...

    def close(self) -> None: ...


def join(stream: ByteStream, stdin: int | None = None, stdout: int | None = None) -> Ended:
    """Joins stream and terminal until one side ends. Input that is no terminal may end; the output goes on."""
    source = sys.stdin.fileno() if stdin is None else stdin
    target = sys.stdout.fileno() if stdout is None else stdout
    with _raw(source), _redraw_on_resize(target):
        try:
            ended = _pump(stream, source, target)
        except ConnectionError:
            ended = Ended.LOST
        finally:
            stream.close()
    if os.isatty(target):
        _write_all(target, b"\r\n")
    return ended


def _pump(stream: ByteStream, source: int, target: int) -> Ended:
    watched = [source, stream.fileno()]
    while True:
        ready, _, _ = select.select(watched, [], [], 0 if stream.pending() else None)
        if stream.fileno() in ready or stream.pending():
            data = stream.receive()
            if data is None:
                return Ended.CLOSED
            _write_all(target, data)
        if source in ready:
            keys = os.read(source, 4096)
            if not keys:
                watched.remove(source)
            elif _type(stream, keys):
                return Ended.LEFT


def _type(stream: ByteStream, keys: bytes) -> bool:
    """Sends keys to the guest. True: ^] was among them; what follows it is dropped."""
    before, escape, _ = keys.partition(ESCAPE)
    if before:
        stream.send(before)
    return bool(escape)


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


@contextmanager
def _raw(source: int) -> Iterator[None]:
    """Every key goes to the guest, ^C too. Put back whatever happens."""
    if not os.isatty(source):
        yield
        return
    before = termios.tcgetattr(source)
    try:
        tty.setraw(source)
        yield
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)


@contextmanager
def _redraw_on_resize(target: int) -> Iterator[None]:
    if not os.isatty(target) or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGWINCH, lambda _number, _frame: _write_all(target, _REDRAW))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
