"""How much work an input takes, counted in lines of Python: the same number on every machine, however busy."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from fuzz.target import Run


class Counter:
    """Counts lines while it is asked to, in this thread and in all that were started after `counting` began."""

    def __init__(self) -> None:
        self._lines = 0
        self._counts = False

    def trace(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if not self._counts:
            return None
        if event == "line":
            self._lines += 1
        return self.trace

    def lines_of(self, run: Run, data: bytes) -> int:
        self._lines, self._counts = 0, True
        try:
            run(data)
        finally:
            self._counts = False
        return self._lines


@contextmanager
def counting() -> Iterator[Counter]:
    counter = Counter()
    mine, others = sys.gettrace(), threading.gettrace()
    threading.settrace(counter.trace)
    sys.settrace(counter.trace)
    try:
        yield counter
    finally:
        sys.settrace(mine)
        threading.settrace(others)  # type: ignore[arg-type]
