"""When a review must be done. Rules cannot be interrupted, so they are asked between one and the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf
from typing import TypeVar

from virt_api.admission.causes import Denied

T = TypeVar("T")

_THREAD = threading.local()


def limited(call: Callable[[], T], within_s: float) -> T:
    """The call, in this thread, with so much time."""
    _THREAD.end = time.monotonic() + within_s
    try:
        return call()
    finally:
        _THREAD.end = inf


def check() -> None:
    """Raises Denied when the time is over: nobody waits for the answer any more."""
    if time.monotonic() > getattr(_THREAD, "end", inf):
        raise Denied("the review took too long", 504, "Timeout")
