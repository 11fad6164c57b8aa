"""A disk as gzip: a member for each piece of it, so that a download that broke goes on with the next piece."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache

from virt_core.apis.exportplan import PIECE
from virt_launcher.exporter.disks import Disk

_LEVEL = 1
_GZIP = 16 + zlib.MAX_WBITS


def packed(disk: Disk, start: int) -> Iterator[bytes]:
    """Of what follows `start`. An empty disk is one member, too."""
    if disk.size == 0:
        yield b"".join(pack(()))
    for begin, end in disk.pieces(start):
        if end - begin == PIECE and disk.is_empty(begin, end):
            yield _empty_piece()
        else:
            yield from pack(disk.read(begin, end))


def pack(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """One member."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for chunk in chunks:
        if data := packer.compress(chunk):
            yield data
    yield packer.flush()


@lru_cache(maxsize=1)
def _empty_piece() -> bytes:
    return b"".join(pack([bytes(PIECE)]))
