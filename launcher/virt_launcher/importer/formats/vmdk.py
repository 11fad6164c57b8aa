"""VMDK in one file: with tables before its grains, or made for streams, where each grain says where it belongs.

What names other files (a descriptor alone, flat or split extents, a parent) is refused.
"""

from __future__ import annotations

import re
import struct
import sys
import zlib
from array import array
from functools import partial

from virt_launcher.disks.images import MAX_VIRTUAL_SIZE
from virt_launcher.importer.formats.base import MAX_HEAD, SECTOR, Blocks, Headed, cut_off, refuse
from virt_launcher.importer.target import Sink

_HEADER = struct.Struct("<4sIIQQQQIQQQ")
_COMPRESS_AT = 77
_ZEROED, _COMPRESSED, _MARKERS = 1 << 2, 1 << 16, 1 << 17
_MARKER = struct.Struct("<QI")
_END_OF_STREAM = 0
_MAX_GRAIN = 2 << 20


class _Head:
    def __init__(self, head: bytes) -> None:
        _, _, self.flags, capacity, grain, where, length, self.entries, _, self.directory, overhead = (
            _HEADER.unpack_from(head)
        )
        self.size, self.grain = capacity * SECTOR, grain * SECTOR
        self.overhead: int
        self.overhead, self.compression = (
            overhead * SECTOR,
            int.from_bytes(head[_COMPRESS_AT : _COMPRESS_AT + 2], "little"),
        )
        self.end_of_text: int = (where + min(length, 1 << 11)) * SECTOR
        self.text = slice(where * SECTOR, self.end_of_text)
        if not SECTOR <= self.grain <= _MAX_GRAIN or not 0 < self.size <= MAX_VIRTUAL_SIZE or self.entries != 512:
            raise refuse("its VMDK header is not valid")
        if self.overhead > MAX_HEAD:
            raise refuse("its tables are larger than any image of ours needs")

    @property
    def streamed(self) -> bool:
        return bool(self.flags & _MARKERS)


def _check_text(text: bytes) -> None:
    """What the descriptor inside says."""
    words = text.split(b"\0", 1)[0].decode("latin-1")
    kind = re.search(r'^createType\s*=\s*"([^"\n]{1,64})"', words, re.MULTILINE)
    if kind is None or kind[1] not in ("monolithicSparse", "streamOptimized"):
        raise refuse("it is a VMDK that names other files; convert it to one file with `qemu-img convert`")
    parent = re.search(r"^parentCID\s*=\s*([0-9a-fA-F]{1,8})\s*$", words, re.MULTILINE)
    if (parent is not None and parent[1].lower() != "ffffffff") or "parentFileNameHint" in words:
        raise refuse("it is a VMDK with a parent; flatten it with `qemu-img convert`")
    if len(re.findall(r"^(?:RW|RDONLY|NOACCESS)\s", words, re.MULTILINE)) != 1:
        raise refuse("it is a VMDK of several files; convert it to one with `qemu-img convert`")


class Vmdk(Headed):
    """Either kind; which one, its header says."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._stream: _Grains | None = None

    def needed(self, head: bytes) -> int:
        if len(head) < SECTOR:
            return SECTOR
        found = _Head(head)
        return max(found.overhead, found.end_of_text, SECTOR)

    def feed(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.feed(data)
        else:
            super().feed(data)

    def finish(self) -> None:
        if self._stream is not None:
            self._stream.finish()
        else:
            super().finish()

    def begin(self, head: bytes) -> Blocks:
        found = _Head(head)
        _check_text(head[found.text])
        self._sink.announce(found.size)
        blocks = Blocks(self._sink, found.grain)
        if found.streamed:
            if found.compression != 1:
                raise refuse("its VMDK header is not valid (its compression)")
            self._stream = _Grains(self._sink, found.grain, found.size)
            self._stream.feed(head[found.overhead :])
        elif found.flags & _COMPRESSED:
            raise refuse("its VMDK header is not valid (its compression)")
        else:
            _add_grains(blocks, head, found)
        return blocks


def _add_grains(blocks: Blocks, head: bytes, found: _Head) -> None:
    grains = -(-found.size // found.grain)
    tables = _words(head, found.directory * SECTOR, -(-grains // found.entries))
    for index, table in enumerate(tables):
        if not table:
            continue
        for at, grain in enumerate(_words(head, table * SECTOR, found.entries), start=index * found.entries):
            if at < grains and grain and not (grain == 1 and found.flags & _ZEROED):
                blocks.add(grain * SECTOR, at * found.grain)


def _words(head: bytes, offset: int, count: int) -> array[int]:
    if offset + 4 * count > len(head):
        raise refuse("its VMDK tables come after its data; rewrite it with `qemu-img convert`")
    found = array("I", head[offset : offset + 4 * count])
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _unpacked(packed: bytes, grain: int, lengths: tuple[int, int]) -> bytes:
    try:
        data = zlib.decompressobj().decompress(packed, grain + 1)
    except zlib.error as error:
        raise refuse(f"a grain of it is broken: {error}") from error
    if len(data) not in lengths:
        raise refuse("a grain of it is broken: it has the wrong length")
    return data


class _Grains:
    """Markers, and behind each what it announces."""

    def __init__(self, sink: Sink, grain: int, size: int) -> None:
        self._sink, self._grain, self._size = sink, grain, size
        self._rest = b""
        self._at, self._skip = 0, 0
        self._ended = False

    def feed(self, data: bytes) -> None:
        self._rest, self._at = self._rest[self._at :] + data, 0
        while not self._ended and self._one():
            pass
        if self._ended:
            self._rest, self._at = b"", 0

    def _one(self) -> bool:
        """One marker with what belongs to it; False: more bytes are needed."""
        left = len(self._rest) - self._at
        if self._skip:
            gone = min(self._skip, left)
            self._at += gone
            self._skip -= gone
            return bool(gone)
        if left < SECTOR:
            return False
        value, length = _MARKER.unpack_from(self._rest, self._at)
        if length == 0:
            return self._metadata(value)
        total = -(-(_MARKER.size + length) // SECTOR) * SECTOR
        if length > 2 * self._grain + SECTOR:
            raise refuse("a grain of it is larger than it can be")
        if left < total:
            return False
        start = self._at + _MARKER.size
        self._place(value * SECTOR, self._rest[start : start + length])
        self._at += total
        return True

    def _metadata(self, sectors: int) -> bool:
        start = self._at + _MARKER.size
        kind = int.from_bytes(self._rest[start : start + 4], "little")
        self._ended = kind == _END_OF_STREAM
        if sectors * SECTOR > MAX_HEAD:
            raise refuse("its tables are larger than any image of ours needs")
        self._skip = SECTOR + sectors * SECTOR
        return True

    def _place(self, offset: int, packed: bytes) -> None:
        if offset % self._grain or offset >= self._size:
            raise refuse("a grain of it belongs to no place of its disk")
        lengths = (self._grain, min(self._grain, self._size - offset))
        self._sink.unpack(offset, self._grain, partial(_unpacked, packed, self._grain, lengths))

    def finish(self) -> None:
        if not self._ended:
            raise cut_off()
