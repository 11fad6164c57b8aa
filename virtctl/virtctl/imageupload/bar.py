"""How much of a file has gone: a bar on a terminal, a line for every tenth when piped."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30
_MIB = 1 << 20
_EVERY_S = 0.2


class Bar:
    def __init__(self, total: int, stream: TextIO | None = None, verb: str = "sent") -> None:
        self._total, self._stream, self._verb = max(total, 1), stream or sys.stderr, verb
        self._live = self._stream.isatty()
        self._started = time.monotonic()
        self._drawn, self._tenth = float("-inf"), -1

    def show(self, done: int) -> None:
        share, now = min(done / self._total, 1.0), time.monotonic()
        if self._live:
            if now - self._drawn >= _EVERY_S or share == 1.0:
                self._drawn = now
                self._stream.write("\r\x1b[K" + self._line(done, share, now))
        elif int(share * 10) > self._tenth:
            self._tenth = int(share * 10)
            self._stream.write(f"{share:.0%} of {self._total / _MIB:.1f} MiB {self._verb}\n")
        self._stream.flush()

    def _line(self, done: int, share: float, now: float) -> str:
        full = int(share * _WIDTH)
        speed = done / _MIB / max(now - self._started, 0.001)
        return f"[{'#' * full}{' ' * (_WIDTH - full)}] {share:6.1%}  {done / _MIB:.1f} MiB  {speed:.1f} MiB/s"

    def end(self) -> None:
        if self._live:
            self._stream.write("\n")
            self._stream.flush()
