"""A volume on its way: packed by the exporter piece by piece, unpacked and checked here.

What breaks off is gone on with.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import click

from virt_core.apis import exportplan
from virtctl.imageupload.bar import Bar
from virtctl.vmexport.parts import FileTarget, PipeTarget
from virtctl.vmexport.way import Broken, Way

_CHUNK = 1 << 18
_GZIP = 16 + zlib.MAX_WBITS
_PAUSE_S = 2.0
#: How fast the exporter computes a checksum at the least, and the time that it gets in any case.
_SUM_BYTES_S, _SUM_LEAST_S = 10 << 20, 120.0


class _Changed(Exception):
    """It is another disk than that of which we have the beginning."""


@dataclass(frozen=True, slots=True)
class Job:
    way: Way
    token: str
    url: str  #: Of the gzip or tar.gz link.
    unpack: bool  #: What is written is the disk itself, not its packing.
    retries: int
    #: After a break: another exporter shows another certificate.
    again: Callable[[], Way]
    checksum: bool = True


@dataclass(slots=True)
class _Kept:
    """The checksum of what the target has, so that it need not be read again."""

    pieces: int = 0
    sum: Any = None


def download(job: Job, target: FileTarget | PipeTarget) -> str:
    """What was downloaded, in words. Raises ClickException."""
    attempt, kept = 0, _Kept()
    try:
        while True:
            transfer = _Transfer(job, target, kept)
            before = target.known().get("pieces", 0)
            try:
                transfer.run()
                break
            except _Changed:
                target.forget()
            except Broken as error:
                attempt = 1 if target.known().get("pieces", 0) > before else attempt + 1
                if attempt > job.retries:
                    raise click.ClickException(f"{error}; run it again to go on where it was") from error
                click.echo(f"{error}; once more", err=True)
                time.sleep(_PAUSE_S)
                job = replace(job, way=job.again())
        if job.checksum and transfer.is_disk and not _is_right(job, transfer.size, transfer.sum.hexdigest()):
            target.discard()
            raise click.ClickException("its checksum is not that of the disk: what came is not kept")
        target.finish()
    finally:
        target.close()
    return f"{transfer.size} bytes, sha256 {transfer.sum.hexdigest()}"


class _Transfer:
    """One attempt."""

    def __init__(self, job: Job, target: FileTarget | PipeTarget, kept: _Kept) -> None:
        self._job, self._target, self._kept = job, target, kept
        self.sum = hashlib.sha256()
        #: Bytes of the disk, or of what the archive is when it is unpacked.
        self.size = 0
        self.is_disk = False
        self._tag, self._total = "", 0

    def run(self) -> None:
        known = self._target.known()
        pieces = known.get("pieces", 0) if known.get("url") == self._job.url else 0
        if not pieces:
            self._target.forget()
        self._target.back()
        url, headers = self._job.url, {}
        if pieces:
            self._read_prefix(known)
            url = f"{url}?{exportplan.QUERY_FROM}={self.size}"
            headers = {"If-Match": known["tag"]}
        answer = self._job.way.ask(url, self._job.token, headers)
        with answer:
            self._check(answer)
            self._take(answer)

    def _check(self, answer: http.client.HTTPResponse) -> None:
        if answer.status in (412, 416):
            raise _Changed
        if answer.status != 200:
            words = answer.read(1000).decode(errors="replace").strip()
            error = f"the exporter answers {answer.status}: {words or answer.reason}"
            if answer.status in (401, 403, 404, 409):
                raise click.ClickException(error)
            raise Broken(error)
        length = answer.getheader(exportplan.SIZE_HEADER, "")
        self.is_disk = length.isdigit()
        self._total = int(length) if self.is_disk else 0
        self._tag = answer.getheader("ETag", "")

    def _take(self, answer: http.client.HTTPResponse) -> None:
        bar = Bar(self._total, verb="downloaded") if self._total else None
        try:
            for packed, raw, ends in _members(_chunks(answer)):
                self.sum.update(raw)
                self.size += len(raw)
                self._target.write(raw if self._job.unpack else packed)
                if ends and self.is_disk and self._tag and self.size % exportplan.PIECE == 0:
                    self._mark()
                if bar is not None:
                    bar.show(self.size)
        except zlib.error as error:
            raise Broken(f"what came is damaged: {error}") from error
        finally:
            if bar is not None:
                bar.end()
        if self.is_disk and self.size != self._total:
            raise Broken(f"{self.size} of {self._total} bytes came")

    def _mark(self) -> None:
        pieces = self.size // exportplan.PIECE
        self._target.mark({"pieces": pieces, "url": self._job.url, "tag": self._tag})
        self._kept.pieces, self._kept.sum = pieces, self.sum.copy()

    def _read_prefix(self, known: dict[str, Any]) -> None:
        """What an earlier attempt has is part of the checksum."""
        if self._kept.sum is not None and self._kept.pieces == known["pieces"]:
            self.sum, self.size = self._kept.sum.copy(), self._kept.pieces * exportplan.PIECE
            return
        file = self._target.prefix()
        if file is None:
            raise Broken("what went to standard output cannot be read again")
        with file:
            source = _limited(file, known["length"])
            for raw in source if self._job.unpack else (raw for _, raw, _ in _members(source)):
                self.sum.update(raw)
                self.size += len(raw)
        if self.size != known["pieces"] * exportplan.PIECE:
            raise _Changed


def _chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Raises Broken when it ends before its end."""
    try:
        while data := answer.read1(_CHUNK):
            yield data
        # A body in chunks that breaks off ends like one that is whole, but for this.
        if not answer.isclosed():
            raise Broken("the connection broke off")
    except (OSError, http.client.HTTPException) as error:
        raise Broken(f"the connection broke off: {error}") from error


def _limited(file: BinaryIO, left: int) -> Iterator[bytes]:
    while left and (data := file.read(min(_CHUNK, left))):
        left -= len(data)
        yield data


def _members(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bytes, bool]]:
    """Packed bytes, what is in them, and whether a member of the gzip stream ends with them. Raises zlib.error."""
    inner, begun = zlib.decompressobj(_GZIP), False
    for chunk in chunks:
        data = chunk
        while data:
            if inner.eof:
                inner = zlib.decompressobj(_GZIP)
            begun = True
            raw = inner.decompress(data, _CHUNK)
            rest = inner.unused_data if inner.eof else inner.unconsumed_tail
            yield data[: len(data) - len(rest)], raw, inner.eof
            data = rest
            while not inner.eof and not data and (more := inner.decompress(b"", _CHUNK)):
                yield b"", more, inner.eof
    if not begun or not inner.eof:
        raise Broken("the connection broke off")


def _is_right(job: Job, size: int, ours: str) -> bool:
    """Whether the exporter, which reads the disk anew, finds the same."""
    url = job.url.removesuffix(exportplan.GZIP) + exportplan.SUM
    deadline = time.monotonic() + max(size / _SUM_BYTES_S, _SUM_LEAST_S)
    while True:
        try:
            with job.way.ask(url, job.token) as answer:
                code, text = answer.status, answer.read(1000).decode(errors="replace")
        except Broken:
            code, text = 0, ""
        if code == 200:
            break
        if code == 404:
            click.echo("the exporter tells no checksum; the disk is not compared", err=True)
            return True
        if time.monotonic() > deadline:
            raise click.ClickException(f"the exporter tells no checksum in time ({code}); --no-checksum does without")
        time.sleep(1.0)
    return text.split()[:1] == [ours]
