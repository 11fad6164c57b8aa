"""VHDX: regions at the front of the file name a table of blocks. A log that was not replayed, and a parent, are
refused."""

from __future__ import annotations

import struct
import sys
import uuid
from array import array

from virt_launcher.disks.images import MAX_VIRTUAL_SIZE
from virt_launcher.importer.formats.base import SECTOR, Blocks, Headed, refuse, round_up

_REGIONS_AT, _FRONT = 192 << 10, 256 << 10
_HEADERS_AT = (64 << 10, 128 << 10)
_LOG_AT, _SEQUENCE_AT = 48, 8
_REGION = struct.Struct("<16sQII")
_ITEM = struct.Struct("<16sIII")
_TABLE = uuid.UUID("2dc27766-f623-4200-9d64-115e9bfd4a08").bytes_le
_METADATA = uuid.UUID("8b7ca206-4790-4b9a-b8fe-575f050f886e").bytes_le
_PARAMETERS = uuid.UUID("caa16737-fa36-4d43-b3b6-33f0aa44e76b").bytes_le
_SIZE = uuid.UUID("2fa54224-cd1b-4876-b211-5dbed83bf4b8").bytes_le
_LOGICAL = uuid.UUID("8141bf1d-a96f-4709-ba47-f233a8faab5f").bytes_le
_MAX_ENTRIES = 2047
_HAS_PARENT = 2
_PRESENT, _PARTLY = 6, 7
_STATE, _OFFSET = 7, ~((1 << 20) - 1)


class Vhdx(Headed):
    def needed(self, head: bytes) -> int:
        if len(head) < _FRONT:
            return _FRONT
        regions = _regions(head)
        return max(offset + length for offset, length in (regions[_TABLE], regions[_METADATA]))

    def begin(self, head: bytes) -> Blocks:
        _check_log(head)
        regions = _regions(head)
        items = _items(head, *regions[_METADATA])
        block, flags = struct.unpack("<II", items[_PARAMETERS][:8])
        size, logical = int.from_bytes(items[_SIZE][:8], "little"), int.from_bytes(items[_LOGICAL][:4], "little")
        if flags & _HAS_PARENT:
            raise refuse("it is a VHDX with a parent; flatten it with `qemu-img convert`")
        if not 1 << 20 <= block <= 256 << 20 or block & (block - 1) or logical not in (512, 4096):
            raise refuse("its VHDX header is not valid")
        if not 0 < size <= MAX_VIRTUAL_SIZE:
            raise refuse("its VHDX header is not valid (its size)")
        self._sink.announce(round_up(size, SECTOR))
        blocks = Blocks(self._sink, block)
        _add_blocks(blocks, _entries(head, *regions[_TABLE]), -(-size // block), logical, block)
        return blocks


def _entries(head: bytes, at: int, length: int) -> array[int]:
    entries = array("Q", head[at : at + length // 8 * 8])
    if sys.byteorder == "big":
        entries.byteswap()
    return entries


def _add_blocks(blocks: Blocks, entries: array[int], count: int, logical: int, block: int) -> None:
    """Behind every `ratio` entries there is one that is no block of the disk."""
    ratio = (logical << 23) // block
    if len(entries) < count + (count - 1) // ratio:
        raise refuse("its VHDX table is too small for its size")
    for number in range(count):
        entry = entries[number + number // ratio]
        if entry & _STATE == _PARTLY:
            raise refuse("it is a VHDX with a parent; flatten it with `qemu-img convert`")
        if entry & _STATE == _PRESENT:
            blocks.add(entry & _OFFSET, number * block)


def _check_log(head: bytes) -> None:
    found = [head[at : at + 4096] for at in _HEADERS_AT if head[at : at + 4] == b"head"]
    if not found:
        raise refuse("its VHDX header is not valid")
    newest = max(found, key=lambda each: int.from_bytes(each[_SEQUENCE_AT : _SEQUENCE_AT + 8], "little"))
    if any(newest[_LOG_AT : _LOG_AT + 16]):
        raise refuse("it is a VHDX that was not closed (its log must be replayed); open and close it, or repair it")


def _regions(head: bytes) -> dict[bytes, tuple[int, int]]:
    count = int.from_bytes(head[_REGIONS_AT + 8 : _REGIONS_AT + 12], "little")
    if head[_REGIONS_AT : _REGIONS_AT + 4] != b"regi" or count > _MAX_ENTRIES:
        raise refuse("its VHDX header is not valid (its regions)")
    found = {}
    for number in range(count):
        kind, offset, length, _ = _REGION.unpack_from(head, _REGIONS_AT + 16 + number * _REGION.size)
        found[kind] = (offset, length)
    if _TABLE not in found or _METADATA not in found:
        raise refuse("its VHDX header is not valid (its regions)")
    return found


def _items(head: bytes, at: int, length: int) -> dict[bytes, bytes]:
    region = head[at : at + length]
    count = int.from_bytes(region[10:12], "little")
    if region[:8] != b"metadata" or count > _MAX_ENTRIES or len(region) < 32 + 32 * count:
        raise refuse("its VHDX header is not valid (its metadata)")
    found = {}
    for number in range(count):
        kind, offset, size, _ = _ITEM.unpack_from(region, 32 + 32 * number)
        found[kind] = region[offset : offset + min(size, 64)]
    if any(len(found.get(kind, b"")) < width for kind, width in ((_PARAMETERS, 8), (_SIZE, 8), (_LOGICAL, 4))):
        raise refuse("its VHDX header is not valid (its metadata)")
    return found
