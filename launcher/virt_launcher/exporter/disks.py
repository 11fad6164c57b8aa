"""A disk as it is read: a file of a claim or a device, by its descriptor, without what is not there.

The content of a claim is its users' and hostile: it is opened beneath the claim, no link is followed, and only a
regular file or the claim's own device is read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from virt_core.apis import names
from virt_core.apis.exportplan import PIECE, ExportVolume
from virt_core.runtime.files import open_beneath

CHUNK = 1 << 18
_ZEROS = bytes(CHUNK)


class NoDisk(Exception):
    """There is nothing to be read; the message says why."""


class Disk:
    """One that is open. `tag` changes when its content may have."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = os.lseek(fd, 0, os.SEEK_END)
        found = os.fstat(fd)
        self.tag = f"{found.st_ino:x}-{self.size:x}-{found.st_mtime_ns:x}"

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def read(self, start: int, end: int) -> Iterator[bytes | memoryview]:
        """Raises OSError when it has become shorter."""
        at = start
        while at < end:
            hole = self._hole(at, end)
            if hole > at:
                yield memoryview(_ZEROS)[: min(hole - at, CHUNK)]
                at += min(hole - at, CHUNK)
                continue
            data = os.pread(self.fd, min(CHUNK, end - at), at)
            if not data:
                raise OSError(errno.EIO, f"the disk ends at byte {at} of {end}")
            at += len(data)
            yield data

    def is_empty(self, start: int, end: int) -> bool:
        """Whether no byte of it was ever written."""
        return self._hole(start, end) >= end

    def _hole(self, at: int, end: int) -> int:
        """Where the hole that begins here ends; here, if none does."""
        try:
            return min(os.lseek(self.fd, at, os.SEEK_DATA), end)
        except OSError as error:
            return end if error.errno == errno.ENXIO else at

    def pieces(self, start: int) -> Iterator[tuple[int, int]]:
        for at in range(start, self.size, PIECE):
            yield at, min(at + PIECE, self.size)


def open_disk(volume: ExportVolume) -> Disk:
    """Raises NoDisk."""
    try:
        if volume.block:
            return Disk(_checked(os.open(volume.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), stat.S_ISBLK))
        return Disk(open_file(volume.path, names.FILE_DISK))
    except OSError as error:
        what = "its device" if volume.block else names.FILE_DISK
        raise NoDisk(f"{what} of the volume {volume.name} cannot be read: {error.strerror}") from error


def open_file(root: str | int, path: str) -> int:
    """A regular file beneath `root`, or OSError. A FIFO does not block us, and a link is an error."""
    return _checked(open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK), stat.S_ISREG)


def _checked(fd: int, kind: object) -> int:
    found = os.fstat(fd).st_mode
    if not callable(kind) or not kind(found):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is of another kind than expected")
    return fd
