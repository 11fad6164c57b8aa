"""Progress on every wait: a spinner with the time on a terminal, one clean line for each change when piped."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_FRAMES = "|/-\\"


class Progress:
    """`with Progress() as progress: progress.update("waiting for …")`. Writes to standard error."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.live = self._stream.isatty()
        self._started = time.monotonic()
        self._last = ""
        self._frame = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def update(self, text: str) -> None:
        """Call it often: on a terminal each call turns the spinner."""
        if self.live:
            self._frame += 1
            seconds = time.monotonic() - self._started
            line = f"{_FRAMES[self._frame % len(_FRAMES)]} {text} ({seconds:.0f} s)"
            self._stream.write("\r\x1b[K" + line[: _width() - 1])
        elif text != self._last:
            self._stream.write(text + "\n")
        self._last = text
        self._stream.flush()

    def clear(self) -> None:
        if self.live and self._last:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._last = ""


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns
