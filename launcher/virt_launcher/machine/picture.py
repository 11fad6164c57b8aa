"""The guest's screen as PNG.

Newer QEMU writes PNG itself; it is passed on. Others write PPM: raw bytes, six megabytes for a common screen. That is
compressed row by row while it comes in, so that only the finished picture is ever held.
"""

from __future__ import annotations

import re
import struct
import zlib

from virt_launcher.errors import LauncherError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: `P6`, width, height, 255, one white space; comments run to the end of their line.
_HEADER = re.compile(rb"P6(?:\s+(?:#[^\n]*\n\s*)*(\d{1,6}))(?:\s+(\d{1,6}))\s+255\s")
_HEADER_LIMIT = 512
MAX_SIDE = 16384
#: What fits a message of the command socket, with room to spare.
MAX_PICTURE_BYTES = 7 << 20
_FAST = 1


class Picture:
    """Takes what libvirt sends, in pieces, whichever of the two it is. Raises LauncherError."""

    def __init__(self) -> None:
        self._head = b""
        self._png = bytearray()
        self._writer: PngWriter | None = None

    def feed(self, data: bytes) -> None:
        if self._writer is not None:
            self._writer.feed(data)
        elif self._png:
            self._keep(data)
        else:
            self._begin(data)

    def finish(self) -> bytes:
        if self._writer is not None:
            return self._writer.finish()
        if not self._png.endswith(_END):
            raise LauncherError("the picture of the screen is incomplete")
        return bytes(self._png)

    def _begin(self, data: bytes) -> None:
        self._head += data
        if len(self._head) < len(_SIGNATURE):
            return
        if self._head.startswith(_SIGNATURE):
            self._keep(self._head)
        else:
            self._writer = PngWriter()
            self._writer.feed(self._head)
        self._head = b""

    def _keep(self, data: bytes) -> None:
        self._png += data
        if len(self._png) > MAX_PICTURE_BYTES:
            raise too_big()


class PngWriter:
    """Takes PPM in pieces, gives PNG. Raises LauncherError for anything else, and for a picture that is too big."""

    def __init__(self) -> None:
        self._rest = b""
        self._width = self._height = self._rows = 0
        self._compressor = zlib.compressobj(_FAST)
        self._packed = bytearray()

    def feed(self, data: bytes) -> None:
        self._rest += data
        if not self._width and not self._read_header():
            return
        row = self._width * 3
        whole = min(len(self._rest) // row, self._height - self._rows)
        for start in range(0, whole * row, row):
            self._pack(self._compressor.compress(b"\0" + self._rest[start : start + row]))
        self._rows += whole
        # What comes after the last row belongs to no picture, and is not kept either.
        self._rest = self._rest[whole * row :] if self._rows < self._height else b""

    def finish(self) -> bytes:
        if not self._width or self._rows != self._height:
            raise LauncherError(f"the picture of the screen ends after row {self._rows} of {self._height}")
        self._pack(self._compressor.flush())
        header = struct.pack(">IIBBBBB", self._width, self._height, 8, 2, 0, 0, 0)
        return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", bytes(self._packed)) + _chunk(b"IEND", b"")

    def _read_header(self) -> bool:
        match = _HEADER.match(self._rest)
        if match is None:
            if len(self._rest) > _HEADER_LIMIT:
                raise LauncherError("the picture of the screen is not in the format that QEMU writes (PPM)")
            return False
        self._width, self._height = int(match[1]), int(match[2])
        if not (0 < self._width <= MAX_SIDE and 0 < self._height <= MAX_SIDE):
            raise LauncherError(
                f"a screen of {self._width} x {self._height} is not plausible: a side has at most {MAX_SIDE} pixels"
            )
        self._rest = self._rest[match.end() :]
        return True

    def _pack(self, data: bytes) -> None:
        self._packed += data
        if len(self._packed) > MAX_PICTURE_BYTES:
            raise too_big()


def too_big() -> LauncherError:
    return LauncherError(f"the picture of the screen is bigger than {MAX_PICTURE_BYTES >> 20} MiB")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


#: How every whole PNG ends.
_END = _chunk(b"IEND", b"")
