"""Gives memory back to the system after a burst of work: a launcher lives for months and works for a second."""

from __future__ import annotations

import ctypes
import gc

_libc = ctypes.CDLL(None)


def release_memory() -> None:
    gc.collect()
    trim = getattr(_libc, "malloc_trim", None)  # musl has none.
    if trim is not None:
        trim(0)
