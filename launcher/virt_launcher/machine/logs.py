"""Logs that a guest can make grow, kept to a bounded size: the serial console, what QEMU says, what libvirt says.

Whoever writes them holds them open for appending, so the file stays: its end is copied into `NAME.1`, in place of the
one before, and the file is cut to nothing. A reader that follows by name (`tail -F`) goes on from the start. Bytes that
come between the last copied one and the cut, some microseconds in a flood, are lost.

This is virtlogd's work, without a second daemon of 25 MiB for each machine.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

#: A serial port brings at most some MB in that time, which come on top.
PERIOD_S = 1.0
_CHUNK = 1 << 18
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class BoundedLogs:
    def __init__(self, paths: Sequence[Path], max_bytes: int, period_s: float = PERIOD_S) -> None:
        self._paths = paths
        self._max_bytes = max_bytes
        self._period_s = period_s

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._period_s):
            for path in self._paths:
                self._look(path)

    def _look(self, path: Path) -> None:
        try:
            if path.stat().st_size > self._max_bytes:
                rotate(path, self._max_bytes)
        except FileNotFoundError:
            return
        except OSError as error:
            # A full disk, perhaps because of this very log: better no old part than no end of it.
            log.warning("a log could not be kept: it is cut", path=str(path), error=str(error))
            _cut(path)


def rotate(path: Path, max_bytes: int) -> None:
    """Moves the last `max_bytes` of the log aside and empties it."""
    source = os.open(path, os.O_RDWR | _OPEN)
    try:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode):
            return
        target = os.open(f"{path}.1", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OPEN, 0o600)
        try:
            _copy(source, target, max(found.st_size - max_bytes, 0), 2 * max_bytes)
        finally:
            os.close(target)
        os.ftruncate(source, 0)
    finally:
        os.close(source)


def _copy(source: int, target: int, offset: int, at_most: int) -> None:
    """To the end, also if that moves meanwhile; but not for ever."""
    end = offset + at_most
    while offset < end and (sent := os.sendfile(target, source, offset, min(_CHUNK, end - offset))):
        offset += sent


def _cut(path: Path) -> None:
    try:
        os.truncate(path, 0)
    except OSError as error:
        log.error("a log cannot be cut", path=str(path), error=str(error))
