"""What a person sees while an instance starts: one line a step, with the time it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

Emit = Callable[[str], None]


class Progress:
    """Lines go to `emit`: the terminal, or the pipe to the process that waits for us."""

    def __init__(self, emit: Emit | None = None) -> None:
        self._emit = emit or _to(sys.stderr)
        self._started = time.monotonic()

    def step(self, text: str) -> None:
        self._emit(f"  {time.monotonic() - self._started:5.1f} s  {text}")

    def line(self, text: str) -> None:
        self._emit(text)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started


def _to(stream: TextIO) -> Emit:
    def emit(text: str) -> None:
        print(text, file=stream, flush=True)

    return emit
