"""What the formats share."""

from __future__ import annotations

from typing import Protocol

from virt_core.apis import importplan
from virt_launcher.importer.errors import Refused
from virt_launcher.importer.target import Sink

#: Tables of an image are kept in memory; no image that we take has more of them.
MAX_HEAD = 64 << 20
SECTOR = 512


class Decoder(Protocol):
    """Takes a file's bytes in their order, and places those of the disk."""

    #: Bytes of the file of which nothing is needed any more, if they were taken from the start.
    settled: int

    def feed(self, data: bytes) -> None: ...

    def finish(self) -> None:
        """The file ends here. Raises Refused when something is missing."""


def refuse(message: str) -> Refused:
    return Refused(importplan.REFUSED, message)


def cut_off() -> Refused:
    return refuse("it is cut off: something of its disk lies behind its end")


def round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


class Raw:
    """The file is the disk."""

    def __init__(self, sink: Sink, at: int = 0) -> None:
        self._sink, self.settled = sink, at

    def feed(self, data: bytes) -> None:
        end = self.settled + len(data)
        self._sink.announce(round_up(end, SECTOR))
        self._sink.place(self.settled, data)
        self.settled = end

    def finish(self) -> None:
        if self.settled == 0:
            raise refuse("it is empty")


class Blocks:
    """A file whose tables come first: blocks of one length, each with its place in the file and on the disk."""

    def __init__(self, sink: Sink, length: int) -> None:
        self._sink, self._length = sink, length
        self._places: dict[int, int] = {}
        self._order: list[int] = []
        self._next, self.position = 0, 0

    def add(self, in_file: int, on_disk: int) -> None:
        if self._places.setdefault(in_file, on_disk) != on_disk:
            raise refuse("two places of its disk share one block of the file")

    def ready(self) -> None:
        """All are known."""
        self._order = sorted(self._places)
        for first, second in zip(self._order, self._order[1:]):
            if second - first < self._length:
                raise refuse("blocks of the file overlap")

    def feed(self, data: bytes) -> None:
        """What lies in one piece in the file and on the disk is placed in one piece."""
        start, end = self.position, self.position + len(data)
        offset, low, high = 0, 0, 0  # The piece: where on the disk, and which bytes of the file.
        while self._next < len(self._order) and (block := self._order[self._next]) < end:
            begin, stop = max(block, start), min(block + self._length, end)
            where = self._places[block] + begin - block
            if begin == high and where == offset + high - low:
                high = stop
            else:
                self._place(offset, data, low - start, high - start)
                offset, low, high = where, begin, max(stop, begin)
            if block + self._length > end:
                break
            self._next += 1
        self._place(offset, data, low - start, high - start)
        self.position = end

    def _place(self, offset: int, data: bytes, start: int, end: int) -> None:
        if start < end:
            self._sink.place(offset, data, start, end)

    def finish(self, padded: int = 0) -> None:
        """`padded`: bytes that may be missing at the end of the last block."""
        missing = self._order[self._next :]
        if missing and (len(missing) > 1 or missing[0] + self._length - padded > self.position):
            raise cut_off()


class Headed:
    """A decoder that first needs the beginning of the file, as long as it says itself."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._head = bytearray()
        self._blocks: Blocks | None = None
        self.settled = 0

    def needed(self, head: bytes) -> int:
        """How much of the file must be there before `begin`, judged by what is there; 0: that is all."""
        raise NotImplementedError

    def begin(self, head: bytes) -> Blocks:
        raise NotImplementedError

    def feed(self, data: bytes) -> None:
        if self._blocks is not None:
            self._blocks.feed(data)
            return
        self._head += data
        need = self.needed(bytes(self._head[: 1 << 20]))
        if need > MAX_HEAD:
            raise refuse("its tables are larger than any image of ours needs")
        if len(self._head) >= need:
            self._blocks = self.begin(bytes(self._head))
            self._blocks.ready()
            self._blocks.feed(bytes(self._head))
            self._head = bytearray()

    def finish(self) -> None:
        if self._blocks is None:
            raise cut_off()
        self._blocks.finish()
