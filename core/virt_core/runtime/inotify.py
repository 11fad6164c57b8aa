"""Waiting for a file to appear without polling: a small inotify reader with a deadline and a stop."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from dataclasses import dataclass

IN_MODIFY = 0x00000002
IN_CLOSE_WRITE = 0x00000008
IN_MOVED_FROM = 0x00000040
IN_MOVED_TO = 0x00000080
IN_CREATE = 0x00000100
IN_DELETE = 0x00000200
IN_DELETE_SELF = 0x00000400
IN_IGNORED = 0x00008000
IN_Q_OVERFLOW = 0x00004000
IN_ONLYDIR = 0x01000000

#: Something has come into, or gone from, a directory.
ENTRIES = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE

_HEADER = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class FileEvent:
    """What happened to a file of a watched directory."""

    watch: int
    mask: int
    name: str

    @property
    def overflow(self) -> bool:
        """The kernel dropped events: look at the directory itself."""
        return bool(self.mask & IN_Q_OVERFLOW)


class Inotify:
    def __init__(self) -> None:
        self.fd: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            _raise("inotify")
        self._pending: list[FileEvent] = []

    def __enter__(self) -> Inotify:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def fileno(self) -> int:
        return self.fd

    def watch(self, path: str | os.PathLike[str], mask: int = ENTRIES) -> int:
        """By path: only for directories that we trust."""
        watch: int = _libc.inotify_add_watch(self.fd, os.fsencode(path), ctypes.c_uint32(mask))
        if watch < 0:
            _raise(os.fspath(path))
        return watch

    def watch_fd(self, dirfd: int, mask: int = ENTRIES) -> int:
        """By an open directory, so that nobody can swap it under us."""
        return self.watch(f"/proc/self/fd/{dirfd}", mask)

    def unwatch(self, watch: int) -> None:
        _libc.inotify_rm_watch(self.fd, watch)

    def wait(self, timeout_s: float | None = None, stop_fd: int = -1) -> list[FileEvent]:
        """The events that have come; empty when the time is over or `stop_fd` is readable."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        fds = [self.fd, stop_fd] if stop_fd >= 0 else [self.fd]
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        # poll, not select: a node with a hundred VMs has descriptors beyond select's 1024.
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(None if left is None else left * 1000)}
        return self._read() if self.fd in ready else []

    def _read(self) -> list[FileEvent]:
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return []
        return _parse(data)


def _parse(data: bytes) -> list[FileEvent]:
    events: list[FileEvent] = []
    offset = 0
    while offset < len(data):
        watch, mask, _cookie, length = _HEADER.unpack_from(data, offset)
        start = offset + _HEADER.size
        name = os.fsdecode(data[start : start + length].rstrip(b"\0"))
        events.append(FileEvent(watch, mask, name))
        offset = start + length
    return events


def _raise(what: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), what)


def wait_for_entry(dirfd: int, name: str, timeout_s: float, stop_fd: int = -1) -> bool:
    """Waits until a directory has an entry of this name. The caller then opens it safely."""
    deadline = time.monotonic() + timeout_s
    with Inotify() as inotify:
        # Watch first, look second: an entry that comes in between is then seen by one of the two.
        inotify.watch_fd(dirfd)
        while not _has(dirfd, name):
            left = deadline - time.monotonic()
            if left <= 0 or (not inotify.wait(left, stop_fd) and _readable(stop_fd)):
                return False
    return True


def _has(dirfd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=dirfd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _readable(fd: int) -> bool:
    if fd < 0:
        return False
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))
