"""Reads what tools like crash and drgn read first of a dump: the headers of an ELF core."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_CORE = 4
#: By the mode of its first vCPU: firmware runs in an older one.
_MACHINES = {3: "i386", 62: "x86_64"}
_LOAD, _NOTE = 1, 4
#: From 640 to 768 KiB.
VGA_WINDOW = 128 << 10


@dataclass(frozen=True, slots=True)
class Core:
    machine: str
    #: The owners of the notes: CORE for the registers of each vCPU, QEMU for the rest of them.
    notes: tuple[str, ...]
    #: Physical address and length of each piece of memory.
    segments: tuple[tuple[int, int], ...]

    def lacks(self, size: int) -> int:
        """How much of the memory from 0 to `size` is not there: the window of the display adapter is no memory."""
        return size - sum(min(start + length, size) - start for start, length in self.segments if start < size)


def read_core(path: Path) -> Core:
    data = path.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01", "a little-endian ELF file of 64 bits"
    kind, machine = struct.unpack_from("<HH", data, 16)
    assert (kind, machine in _MACHINES) == (_CORE, True), (kind, machine)
    (headers,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    notes: list[str] = []
    segments: list[tuple[int, int]] = []
    for number in range(count):
        form, _flags, offset, _virtual, physical, length, _memory, _align = struct.unpack_from(
            "<IIQQQQQQ", data, headers + number * size
        )
        assert offset + length <= len(data), "a header points behind the end of the file"
        if form == _NOTE:
            notes += _notes(data[offset : offset + length])
        elif form == _LOAD:
            segments.append((physical, length))
    return Core(_MACHINES[machine], tuple(notes), tuple(segments))


def _notes(data: bytes) -> list[str]:
    found, at = [], 0
    while at + 12 <= len(data):
        name_size, value_size, _kind = struct.unpack_from("<III", data, at)
        found.append(data[at + 12 : at + 12 + name_size].rstrip(b"\0").decode())
        at += 12 + (name_size + 3) // 4 * 4 + (value_size + 3) // 4 * 4
    return found
