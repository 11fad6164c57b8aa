"""qcow2, read as a stream: clusters are placed on the disk as they come by, without a second copy of the image.

The tables that say where a cluster belongs mostly come before it, for that is how QEMU allocates them. What comes
earlier is put aside until the tables are there. Where the source can be asked for any part of itself, the tables are
asked for in advance (`hint`); the stream must then show the same bytes, so that a checksum of it covers them.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from virt_launcher.disks.images import BadImageError, Qcow2Header, qcow2_header
from virt_launcher.importer import zstd
from virt_launcher.importer.formats.base import SECTOR, cut_off, refuse, round_up
from virt_launcher.importer.formats.early import Early
from virt_launcher.importer.target import Sink

_OFFSET_BITS = 0x00FF_FFFF_FFFF_FE00
_COMPRESSED, _ZERO = 1 << 62, 1
#: How much of what came last stays at hand, for compressed clusters over a border or of a table that comes later.
_RECENT_BYTES = 8 << 20
#: Beyond this an image is mostly something else than its disk, such as snapshots.
_SLACK = 1 << 30
#: Clusters that are read again, for compressed ones that lie over the border.
_OVERLAP = 8
#: Tables that are asked for in advance.
_MAX_HINTS = 32 << 20

Hint = Callable[[int, int], bytes]


class Qcow2:
    def __init__(self, sink: Sink, head: bytes, make_file: Callable[[], int] | None) -> None:
        try:
            self._header: Qcow2Header = qcow2_header(head)
        except BadImageError as error:
            raise refuse(str(error)) from error
        if self._header.extended:
            raise refuse("it uses extended L2 entries; rewrite it with `qemu-img convert -O qcow2`")
        if self._header.tables.l1_at % self._header.cluster or not self._header.tables.l1_at:
            raise refuse("its qcow2 header is not valid (the place of its tables)")
        self._sink = sink
        sink.announce(round_up(self._header.virtual_size, SECTOR))
        self._bits, self._cluster = self._header.cluster_bits, self._header.cluster
        self._limit = (2 * self._header.virtual_size + _SLACK) >> self._bits
        self._rest = b""
        self._number = 0  # of the next cluster of the file
        self._l1 = bytearray()
        self._l1_first = self._header.tables.l1_at >> self._bits
        self._l1_length = self._header.tables.l1_entries * 8
        #: The tables of the second level that have not come by: cluster of the file → place in the first level.
        self._awaited: dict[int, int] = {}
        self._hinted: dict[int, bytes] = {}
        self._places = array("I")  # cluster of the file → cluster of the disk + 1
        self._open = 0  # clusters that have a place and have not come by
        self._packed: dict[int, list[tuple[int, int, int]]] = {}  # by the cluster of the file in which they end
        self._touched: set[int] = set()
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._early = Early(make_file)
        self._have_l1 = False
        self._done = 0  # clusters that an earlier importer has taken
        self.settled = 0

    # Tables in advance

    def resume(self, settled: int) -> int:
        """An earlier importer has taken so many bytes; tells from where on the stream is to come. Needs a hint."""
        self._done = settled >> self._bits
        self._number = max(self._done - _OVERLAP, 0)
        return self._number << self._bits

    def hint(self, read: Hint) -> bool:
        """Asks for the tables now; False: they are too many."""
        l1 = read(self._header.tables.l1_at, self._l1_length)
        offsets = sorted({entry & _OFFSET_BITS for entry in _numbers(l1) if entry & _OFFSET_BITS})
        if len(l1) != self._l1_length or len(offsets) * self._cluster + len(l1) > _MAX_HINTS:
            return False
        tables = {offset >> self._bits: read(offset, self._cluster) for offset in offsets}
        if any(len(table) != self._cluster for table in tables.values()):
            raise cut_off()
        self._take_l1(l1)
        for number, table in tables.items():
            self._take_l2(number, table)
        for at in range(0, len(l1), self._cluster):
            tables[self._l1_first + at // self._cluster] = l1[at : at + self._cluster]
        self._hinted = {number: table for number, table in tables.items() if number >= self._number}
        return True

    # The stream

    def feed(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        view, size, at = memoryview(data), self._cluster, 0
        whole = len(data) // size * size
        while at < whole:
            if count := self._plain((whole - at) // size):
                place = self._places[self._number] - 1
                self._sink.place(place << self._bits, data, at, at + count * size)
                self._open -= max(self._number + count - max(self._number, self._done), 0)
                self._number += count
                at += count * size
            else:
                self._unit(view[at : at + size])
                at += size
        self._rest = data[whole:]
        self.settled = self._number << self._bits

    def _plain(self, most: int) -> int:
        """How many of the next clusters have their places on the disk, one behind the other. Tables have none."""
        first = self._number
        if not self._have_l1 or first >= len(self._places) or not (place := self._places[first]):
            return 0
        last = min(first + most, len(self._places))
        for number in range(first, last):
            if self._places[number] != place + number - first or number in self._hinted or number in self._awaited:
                return number - first
        return last - first

    def _unit(self, view: memoryview) -> None:
        number, self._number = self._number, self._number + 1
        if number in self._hinted:
            self._check_hint(number, view)
        elif not self._have_l1 and 0 <= number - self._l1_first < -(-self._l1_length // self._cluster):
            self._gather_l1(view)
        elif number in self._awaited:
            self._take_l2(number, bytes(view))
        elif number < len(self._places) and (place := self._places[number]):
            self._sink.place((place - 1) << self._bits, bytes(view))
            self._open -= number >= self._done
        else:
            self._other(number, bytes(view))

    def _check_hint(self, number: int, view: memoryview) -> None:
        hinted = self._hinted.pop(number)
        if view[: len(hinted)] != hinted:
            raise refuse("its tables changed while it was read")

    def _gather_l1(self, view: memoryview) -> None:
        self._l1 += view
        if len(self._l1) >= self._l1_length:
            self._take_l1(bytes(self._l1[: self._l1_length]))
            self._l1 = bytearray()

    def _take_l1(self, data: bytes) -> None:
        self._have_l1 = True
        for index, entry in enumerate(_numbers(data)):
            if offset := entry & _OFFSET_BITS:
                number = self._checked(offset)
                if number in self._awaited:
                    raise refuse("two of its tables share one cluster")
                self._awaited[number] = index
        for number in [each for each in self._awaited if self._done <= each < self._number]:
            self._take_l2(number, self._past(number))
        self._settle()

    def _take_l2(self, number: int, data: bytes) -> None:
        index = self._awaited.pop(number)
        per_table, total = self._cluster // 8, -(-self._header.virtual_size // self._cluster)
        for at, entry in enumerate(_numbers(data), start=index * per_table):
            if at >= total:
                break
            if entry & _COMPRESSED:
                self._add_packed(entry, at)
            elif entry & _OFFSET_BITS and not entry & _ZERO:
                self._add_place(self._checked(entry & _OFFSET_BITS), at)
        self._settle()

    def _checked(self, offset: int) -> int:
        number = offset >> self._bits
        if offset % self._cluster or not number or number > self._limit:
            raise refuse("its tables point to where no cluster can be")
        if 0 <= number - self._l1_first < -(-self._l1_length // self._cluster):
            raise refuse("its tables and its data overlap")
        return number

    def _add_place(self, number: int, guest: int) -> None:
        if number >= len(self._places):
            self._places.frombytes(bytes(4 * (max(number + 1, len(self._places) * 3 // 2) - len(self._places))))
        if self._places[number] or number in self._awaited:
            raise refuse("two places of its disk share one cluster of the file")
        self._places[number] = guest + 1
        if number < self._done:
            return
        if number < self._number:
            self._sink.place(guest << self._bits, self._past(number))
        else:
            self._open += 1

    # Compressed clusters

    def _add_packed(self, entry: int, guest: int) -> None:
        shift = 62 - (self._bits - 8)
        offset = entry & ((1 << shift) - 1)
        sectors = ((entry & (_COMPRESSED - 1)) >> shift) + 1
        end = (offset // SECTOR + sectors) * SECTOR
        first, last = offset >> self._bits, (end - 1) >> self._bits
        if not first or last > self._limit or last - first > 4:
            raise refuse("its tables point to where no cluster can be")
        if last < self._done:
            return
        if last < self._number:
            self._unpack(offset, end, guest)
            return
        self._packed.setdefault(last, []).append((offset, end, guest))
        self._touched.update(range(first, last + 1))

    def _unpack(self, offset: int, end: int, guest: int) -> None:
        first, last = offset >> self._bits, (end - 1) >> self._bits
        parts = [self._past(number, missing=b"" if number == last else None) for number in range(first, last + 1)]
        start = offset - (first << self._bits)
        data = (parts[0] if len(parts) == 1 else b"".join(parts))[start : start + end - offset]
        make = partial(_unpacked, data, self._cluster, by_zstd=self._header.zstd)
        self._sink.unpack(guest << self._bits, self._cluster, make)

    def _other(self, number: int, data: bytes) -> None:
        """Compressed clusters, or something that no table has named yet, or nothing that counts."""
        self._recent[number] = data
        for offset, end, guest in self._packed.pop(number, ()):
            self._unpack(offset, end, guest)
        while len(self._recent) * self._cluster > _RECENT_BYTES:
            old, gone = self._recent.popitem(last=False)
            if not self._complete() and old not in self._touched:
                self._early.keep(old, gone)
            self._touched.discard(old)

    def _past(self, number: int, missing: bytes | None = None) -> bytes:
        """A cluster that has come by, or `missing` at the end of the file."""
        data = self._recent.get(number)
        if data is None:
            data = self._early.get(number)
        if data is not None:
            return data
        if number < self._number:
            raise refuse(
                "its clusters are too far out of order to be read as a stream; rewrite it with `qemu-img convert`"
            )
        if missing is None:
            raise cut_off()
        return missing

    # The end

    def _complete(self) -> bool:
        """Nothing that comes later can name a cluster that came by."""
        return self._have_l1 and not self._awaited

    def _settle(self) -> None:
        if self._complete():
            self._early.drop()

    def finish(self) -> None:
        if self._rest:
            self._unit(memoryview(self._rest + bytes(self._cluster - len(self._rest))))
            self._rest = b""
        if self._open or not self._complete():
            raise cut_off()
        for entries in list(self._packed.values()):
            for offset, end, guest in entries:
                self._unpack(offset, end, guest)
        if self._hinted:
            raise cut_off()


def _unpacked(data: bytes, cluster: int, *, by_zstd: bool) -> bytes:
    try:
        plain = zstd.unpack(data, cluster) if by_zstd else zlib.decompressobj(-15).decompress(data, cluster)
    except (zlib.error, zstd.ZstdError) as error:
        raise refuse(f"a compressed cluster of it is broken: {error}") from error
    if len(plain) != cluster:
        raise refuse("a compressed cluster of it is broken: it is too short")
    return plain


def _numbers(data: bytes) -> array[int]:
    found = array("Q", data[: len(data) // 8 * 8])
    if sys.byteorder == "little":
        found.byteswap()
    return found
