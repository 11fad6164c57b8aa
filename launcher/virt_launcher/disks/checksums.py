"""A short number by which two nodes see that they have the same image. Imported when a machine moves."""

from __future__ import annotations

import errno
import os
import zlib

_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)


def checksum(path: str) -> int:
    """CRC-32 of what is in the file, by place. Never 0. Holes and zeros count the same: one node may have the one and
    another node the other. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        found = zlib.crc32(size.to_bytes(8, "little"))
        offset = _data_from(fd, 0, size)
        while offset < size:
            data = os.pread(fd, _CHUNK, offset)
            if data != _ZEROS[: len(data)]:
                found = zlib.crc32(data, zlib.crc32(offset.to_bytes(8, "little"), found))
            offset = _data_from(fd, offset + _CHUNK, size)
        return found or 1
    finally:
        os.close(fd)


def _data_from(fd: int, offset: int, size: int) -> int:
    """Where the next piece begins that is not only a hole; `size`: there is none."""
    if offset >= size:
        return size
    try:
        return os.lseek(fd, offset, os.SEEK_DATA) // _CHUNK * _CHUNK
    except OSError as error:
        return size if error.errno == errno.ENXIO else offset
