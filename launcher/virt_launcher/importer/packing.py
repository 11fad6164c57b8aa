"""Files that are packed as a whole: gzip, xz, zstd.

Unpacked piece by piece, each of a bounded size, so that a file that swells to a thousand times its length costs time
and no memory; who takes the pieces says when it is too much.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from virt_core.apis import importplan
from virt_launcher.importer.errors import Refused
from virt_launcher.importer.zstd import ZstdDecompressor, ZstdError

PIECE = 1 << 20
_XZ_MEMORY = 128 << 20
_GZIP = 31  # zlib's number for a gzip header around a window of 32 KiB


class Unpacker(Protocol):
    """What a kind of packing does."""

    def feed(self, data: bytes) -> Iterator[bytes]: ...

    def whole(self) -> bool:
        """Whether it may end here."""


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_GZIP)
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inner.eof:
                data = data.lstrip(b"\0")  # Tapes and some tools pad.
                if not data:
                    return
                self._inner = zlib.decompressobj(_GZIP)
            self._begun = True
            yield self._inner.decompress(data, PIECE)
            data = self._inner.unconsumed_tail or self._inner.unused_data
            while not self._inner.eof and not data and (more := self._inner.decompress(b"", PIECE)):
                yield more

    def whole(self) -> bool:
        return self._begun and self._inner.eof


class _Xz:
    def __init__(self) -> None:
        self._inner = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data or not (self._inner.needs_input or self._inner.eof):
            if self._inner.eof:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._inner = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
            yield self._inner.decompress(data, PIECE)
            data = self._inner.unused_data if self._inner.eof else b""

    def whole(self) -> bool:
        return self._inner.eof


class _Zstd:
    def __init__(self) -> None:
        self._inner = ZstdDecompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._inner.give(data)
        while piece := self._inner.take():
            yield piece

    def whole(self) -> bool:
        return self._inner.complete


_KINDS: tuple[tuple[bytes, str, Callable[[], Unpacker]], ...] = (
    (b"\x1f\x8b", "gzip", _Gzip),
    (b"\xfd7zXZ\0", "xz", _Xz),
    (b"\x28\xb5\x2f\xfd", "zstd", _Zstd),
)


def kind_of(head: bytes) -> str:
    """Empty: not packed."""
    return next((name for magic, name, _ in _KINDS if head.startswith(magic)), "")


def unpacked(chunks: Iterator[bytes], kind: str) -> Iterator[bytes]:
    """Raises Refused when it is broken or ends too early."""
    inner = next(make for _, name, make in _KINDS if name == kind)()
    try:
        for chunk in chunks:
            yield from (piece for piece in inner.feed(chunk) if piece)
    except (zlib.error, lzma.LZMAError, ZstdError) as error:
        raise Refused(importplan.REFUSED, f"its {kind} packing is broken: {error}") from error
    if not inner.whole():
        raise Refused(importplan.REFUSED, f"it is cut off: its {kind} packing has no end")
