"""A disk image of another format in the place of a raw disk: somebody copied a qcow2 where raw bytes belong.

Run as raw it boots nothing, and would be lengthened like a disk. But a guest may write any bytes to its own disk, the
start of a qcow2 too, and must not lose it by that. So an image is refused only when the file cannot be a machine's own:

- its start is that of a qcow2 in every field, not only by its first four bytes;
- it is shorter than its claim, while we lengthen a disk to its claim before a guest sees it;
- and it carries no mark of ours, or has become shorter since: a mark is an extended attribute with the length at which
  a machine last used the file. A guest reaches neither the attributes nor the length, and who copies another file over
  it changes the length.

Whatever is found, the file is never opened as anything but raw.
"""

from __future__ import annotations

import os
import struct

from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

#: magic, version; backing file at, its length; cluster bits; size; encryption; L1 entries, L1 table at, refcounts at
_START = struct.Struct(">4sIQIIQIIQQ")
_MAGIC = b"QFI\xfb"
_MARK = "user.virtpod.raw-bytes"


def is_qcow2(start: bytes, length: int) -> bool:
    """`start`: the first bytes of a file that has `length` of them. Every field must make sense."""
    if len(start) < _START.size:
        return False
    magic, version, _, backing_length, bits, size, encryption, entries, table, counts = _START.unpack_from(start)
    if magic != _MAGIC or version not in (2, 3) or not 9 <= bits <= 21:
        return False
    cluster = 1 << bits
    needed = -(-size // (cluster * cluster // 8))
    return (
        0 < size <= 1 << 56
        and backing_length < 1024
        and encryption in (0, 1, 2)
        and entries >= needed
        and all(cluster <= place < length and place % cluster == 0 for place in (table, counts))
    )


def is_foreign(fd: int, wanted: int) -> bool:
    """Whether the file is somebody's qcow2 and no machine's disk. `wanted`: the bytes that the disk should have."""
    length = os.fstat(fd).st_size
    if length >= wanted or 0 < _marked(fd) <= length:
        return False
    return is_qcow2(os.pread(fd, _START.size, 0), length)


def mark(fd: int) -> None:
    """From now on the file is a machine's own, whatever it writes. Not every file system can keep that."""
    try:
        os.setxattr(fd, _MARK, str(os.fstat(fd).st_size).encode())
    except OSError as error:
        log.info("a disk cannot be marked as raw", error=str(error))


def _marked(fd: int) -> int:
    try:
        text = os.getxattr(fd, _MARK)
    except OSError:
        return 0  # None, or a file system without such attributes.
    return int(text) if text.isdigit() and len(text) < 20 else 0
