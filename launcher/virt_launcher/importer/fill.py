"""From a stream of bytes to a disk: unpacked, told by its first bytes, placed, checked, and only then named."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

from virt_core.apis import importplan
from virt_core.apis.importplan import ImportPlan, ImportReport
from virt_launcher.importer import packing
from virt_launcher.importer.checksum import Checksum
from virt_launcher.importer.errors import Refused
from virt_launcher.importer.formats import detect
from virt_launcher.importer.formats.base import SECTOR, Decoder, Raw, refuse, round_up
from virt_launcher.importer.formats.qcow2 import Hint, Qcow2
from virt_launcher.importer.journal import Entry, Journal
from virt_launcher.importer.progress import Meter
from virt_launcher.importer.target import CHUNK, Target

#: After so many bytes what is there is made safe, and written down.
_STEP = 64 << 20
#: A file may be longer than its disk: tables, snapshots, what nobody uses any more.
_SLACK = 1 << 30
_AGAIN = 1 << 20


class Filler:
    """One disk from one stream."""

    def __init__(self, plan: ImportPlan, target: Target, journal: Journal, meter: Meter) -> None:
        self._plan, self._target, self._journal, self._meter = plan, target, journal, meter
        self._checksum = Checksum(plan.checksum)
        self._source: dict[str, Any] = {}
        self._resumable = False
        self._format, self._resumed = "", 0

    def describe(self, source: dict[str, Any]) -> None:
        """What the journal is to say of a source that can be taken up again."""
        self._source, self._resumable = source, True

    # Taking up

    def earlier(self) -> Entry | None:
        """What an earlier importer left that can be gone on with."""
        entry = self._journal.read()
        if entry is None or not self._resumable or entry.source != self._source or not entry.settled:
            return None
        if entry.format == detect.QCOW2:
            return None if self._checksum.wanted else entry
        return entry if entry.format == detect.RAW else None

    def go_on(self, entry: Entry, stream: Callable[[int], Iterator[bytes]], read: Hint) -> ImportReport:
        self._format, self._resumed = entry.format, entry.settled
        self._meter.taken = entry.settled
        if entry.format == detect.RAW:
            self._hash_again(entry.settled)
            self._target.announce(entry.settled)
            decoder: Decoder = Raw(self._target, entry.settled)
            return self._pour(decoder, self._counted(stream(entry.settled)))
        found = Qcow2(self._target, read(0, detect.HEAD), self._journal.spare_file)
        start = found.resume(entry.settled)
        if not found.hint(read):
            raise refuse("its tables are too many to go on with it")
        return self._pour(found, self._counted(stream(start)))

    def _hash_again(self, end: int) -> None:
        """A raw disk is the file, so what is here already can be read from here."""
        if self._checksum.wanted:
            for at in range(0, end, _AGAIN):
                wanted = min(_AGAIN, end - at)
                data = self._target.read(at, wanted)
                self._checksum.take(data + bytes(wanted - len(data)))

    # From the start

    def fill(self, chunks: Iterator[bytes], read: Hint | None = None, *, bounded: bool = True) -> ImportReport:
        self._target.begin()
        self._journal.clear()
        self._checksum.reset()
        self._meter.taken = self._resumed = 0
        counted = self._counted(chunks)
        head, counted = _peek(counted)
        if kind := packing.kind_of(head):
            self._resumable, read = False, None
            head, counted = _peek(packing.unpacked(counted, kind))
            if packing.kind_of(head):
                raise refuse("it is packed twice")
        self._format = detect.format_of(head)
        if self._format == detect.RAW and not bounded and not self._checksum.wanted and not kind:
            raise Refused(
                importplan.INVALID,
                "the server does not say how long the file is, so a part could pass for the whole: give a checksum",
            )
        spare = None if self._plan.block else self._journal.spare_file
        decoder = detect.decoder(self._format, head, self._target, spare)
        if isinstance(decoder, Qcow2) and read is not None:
            self._resumable &= decoder.hint(read)
        elif self._format != detect.RAW:
            self._resumable = False
        return self._pour(decoder, counted)

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in self._checksum.watch(chunks):
            self._meter.taken += len(chunk)
            yield chunk

    def _pour(self, decoder: Decoder, chunks: Iterator[bytes]) -> ImportReport:
        total, noted, limit = 0, decoder.settled, 2 * max(self._plan.size, self._plan.room) + _SLACK
        for chunk in chunks:
            decoder.feed(chunk)
            total += len(chunk)
            if total > limit:
                raise refuse(f"it has more than {limit} bytes, which no image for this claim needs")
            if self._resumable and decoder.settled - noted >= _STEP:
                self._note(noted := decoder.settled)
        decoder.finish()
        self._checksum.check()
        return self._conclude()

    def _note(self, settled: int) -> None:
        self._target.sync()
        self._journal.write(Entry(source=self._source, format=self._format, settled=settled, size=self._target.size))

    def _conclude(self) -> ImportReport:
        if self._plan.preallocate:
            self._target.allocate()
        self._target.sync()
        self._journal.write(
            Entry(
                source=self._source, format=self._format, settled=self._meter.taken, size=self._target.size, whole=True
            )
        )
        self._target.finish()
        return ImportReport(
            reason=importplan.DONE,
            format=self._format,
            virtual_size=self._target.size,
            taken=self._meter.taken,
            resumed=self._resumed,
        )

    def copy(self, fd: int) -> ImportReport:
        """A disk that is here: its data, and not its holes."""
        self._target.begin()
        self._format, end = detect.RAW, os.lseek(fd, 0, os.SEEK_END)
        self._target.announce(round_up(end, SECTOR))
        self._meter.length, at = end, 0
        while at < end and (start := _next_data(fd, at)) is not None:
            at = start
            hole = os.lseek(fd, at, os.SEEK_HOLE)
            while at < hole and (data := os.pread(fd, min(CHUNK, hole - at), at)):
                self._target.place(at, data)
                at += len(data)
                self._meter.taken = at
        self._meter.taken = end
        return self._conclude()

    def blank(self) -> ImportReport:
        self._target.begin()
        self._target.announce(self._plan.size)
        self._format = detect.RAW
        return self._conclude()


def _next_data(fd: int, at: int) -> int | None:
    """Where the next data begin; None: there are no more. A device has no holes."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def _peek(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes, and everything from the start."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= detect.HEAD:
            break

    def again() -> Iterator[bytes]:
        yield head
        yield from chunks

    return head[: detect.HEAD], again()
