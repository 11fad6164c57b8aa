"""zstd, by the library that QEMU itself brings along. Its window, and so its memory, is bounded."""

from __future__ import annotations

import ctypes
import threading
from functools import cache

_WINDOW_LOG_MAX, _MAX_WINDOW = 100, 27  # 128 MiB, as the program `zstd` takes without being asked
_ROOM = 1 << 20


class ZstdError(ValueError):
    """It is no zstd, or it is broken."""


class _Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("pos", ctypes.c_size_t)]


@cache
def _library() -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL("libzstd.so.1")
    except OSError as error:
        raise ZstdError("this image has no libzstd") from error
    lib.ZSTD_createDStream.restype = ctypes.c_void_p
    lib.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
    lib.ZSTD_initDStream.argtypes = [ctypes.c_void_p]
    lib.ZSTD_initDStream.restype = ctypes.c_size_t
    lib.ZSTD_DCtx_setParameter.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    lib.ZSTD_DCtx_setParameter.restype = ctypes.c_size_t
    lib.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    lib.ZSTD_decompressStream.restype = ctypes.c_size_t
    lib.ZSTD_isError.argtypes = [ctypes.c_size_t]
    lib.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
    lib.ZSTD_getErrorName.restype = ctypes.c_char_p
    return lib


class ZstdDecompressor:
    """One stream, which may be several frames. `complete`: no frame is open."""

    def __init__(self) -> None:
        self._lib = _library()
        self._stream = self._lib.ZSTD_createDStream()
        self._lib.ZSTD_DCtx_setParameter(self._stream, _WINDOW_LOG_MAX, _MAX_WINDOW)
        self._room = ctypes.create_string_buffer(_ROOM)
        self._source = ctypes.create_string_buffer(1)
        self._length, self._at, self._full = 0, 0, False
        self.complete = True

    def __del__(self) -> None:
        stream, self._stream = getattr(self, "_stream", None), None
        if stream:
            self._lib.ZSTD_freeDStream(stream)

    def reset(self) -> None:
        self._lib.ZSTD_initDStream(self._stream)
        self._length, self._at, self._full, self.complete = 0, 0, False, True

    def give(self, data: bytes) -> None:
        self._source = ctypes.create_string_buffer(data, max(len(data), 1))
        self._length, self._at = len(data), 0

    def take(self) -> bytes:
        """The next piece, at most 1 MiB; empty: give more. Raises ZstdError."""
        while self._at < self._length or self._full:
            inside = _Buffer(ctypes.addressof(self._source), self._length, self._at)
            outside = _Buffer(ctypes.addressof(self._room), _ROOM, 0)
            code = self._lib.ZSTD_decompressStream(self._stream, ctypes.byref(outside), ctypes.byref(inside))
            if self._lib.ZSTD_isError(code):
                raise ZstdError(self._lib.ZSTD_getErrorName(code).decode())
            self._at, self.complete, self._full = inside.pos, code == 0, code != 0 and outside.pos == _ROOM
            if outside.pos:
                return ctypes.string_at(self._room, outside.pos)
        return b""


_own = threading.local()


def unpack(data: bytes, limit: int) -> bytes:
    """All of it, up to `limit` bytes. Each thread has its own unpacker, which begins anew each time."""
    unpacker: ZstdDecompressor | None = getattr(_own, "unpacker", None)
    if unpacker is None:
        unpacker = _own.unpacker = ZstdDecompressor()
    unpacker.reset()
    out = b""
    unpacker.give(data)
    while len(out) < limit and (piece := unpacker.take()):
        out += piece
    return out[:limit]
