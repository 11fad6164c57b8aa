"""One regular file into another: by sharing its blocks where the file system can, else by its data, holes left out."""

from __future__ import annotations

import errno
import fcntl
import os

_FICLONE = 0x40049409
#: What a file system says that cannot share blocks between these two files.
_CANNOT = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS})
_CHUNK = 64 << 20
_PIECE = 1 << 20


def copy_file(source: int, target: int) -> bool:
    """Fills an empty file. True: the kernel did it at one instant. False: piece by piece, so what was written
    meanwhile may be in it or not."""
    if reflink(source, target):
        return True
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for start, end in _extents(source, size):
        _copy_range(source, target, start, end)
    return False


def reflink(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    return True


def _extents(fd: int, size: int) -> list[tuple[int, int]]:
    """Where there is data. A file system that does not know says: everywhere."""
    found, offset = [], 0
    while offset < size:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        offset = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        found.append((start, offset))
    return found


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        try:
            done = os.copy_file_range(source, target, min(end - start, _CHUNK), start, start)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            done = _by_hand(source, target, start, min(end - start, _PIECE))
        if done == 0:
            return  # It has become shorter meanwhile.
        start += done


def _by_hand(source: int, target: int, start: int, length: int) -> int:
    piece = memoryview(os.pread(source, length, start))
    done = 0
    while done < len(piece):
        done += os.pwrite(target, piece[done:], start + done)
    return done
