"""VDI: a header, a table of blocks, the blocks."""

from __future__ import annotations

import struct
import sys
from array import array

from virt_launcher.disks.images import MAX_VIRTUAL_SIZE
from virt_launcher.importer.formats.base import SECTOR, Blocks, Headed, refuse, round_up

_HEADER = struct.Struct("<I")
_TYPE_AT, _MAP_AT, _DATA_AT, _SIZE_AT, _BLOCK_AT, _EXTRA_AT, _COUNT_AT = 76, 340, 344, 368, 376, 380, 384
_LINK_AT, _HEAD = 424, 512
_DYNAMIC, _STATIC = 1, 2
_NOWHERE = 0xFFFF_FFFE


class Vdi(Headed):
    def needed(self, head: bytes) -> int:
        if len(head) < _HEAD:
            return _HEAD
        return max(self._at(head, _DATA_AT), self._at(head, _MAP_AT) + 4 * self._at(head, _COUNT_AT), _HEAD)

    @staticmethod
    def _at(head: bytes, offset: int) -> int:
        found: int = _HEADER.unpack_from(head, offset)[0]
        return found

    def begin(self, head: bytes) -> Blocks:
        kind, block, count = self._at(head, _TYPE_AT), self._at(head, _BLOCK_AT), self._at(head, _COUNT_AT)
        size = int.from_bytes(head[_SIZE_AT : _SIZE_AT + 8], "little")
        if kind not in (_DYNAMIC, _STATIC) or any(head[_LINK_AT : _LINK_AT + 32]):
            raise refuse("it is a VDI that needs another file (a snapshot or a difference); flatten it")
        if not SECTOR <= block <= 64 << 20 or block % SECTOR or self._at(head, _EXTRA_AT):
            raise refuse("its VDI header is not valid")
        if not 0 < size <= MAX_VIRTUAL_SIZE or count < -(-size // block):
            raise refuse("its VDI header is not valid (its size)")
        self._sink.announce(round_up(size, SECTOR))
        blocks = Blocks(self._sink, block)
        start, data = self._at(head, _MAP_AT), self._at(head, _DATA_AT)
        entries = array("I", head[start : start + 4 * count])
        if sys.byteorder == "big":
            entries.byteswap()
        for number, entry in enumerate(entries[: -(-size // block)]):
            if entry < _NOWHERE:
                blocks.add(data + entry * block, number * block)
        return blocks
