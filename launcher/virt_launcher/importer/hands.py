"""A few threads that unpack and write, beside the one that reads.

zlib, zstd and the kernel let other threads work meanwhile, so a stream is read, unpacked and written at the same time.
What waits is bounded in bytes. What goes wrong is raised where the next job is given, or where all are waited for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

_COUNT = 2
_WAITING = 8 << 20

Job = Callable[[], None]


class Hands:
    """Jobs of one lane are done one after the other, in their order. One thread gives them."""

    def __init__(self, count: int = _COUNT) -> None:
        self._changed = threading.Condition()
        self._lanes: list[deque[tuple[Job, int]]] = [deque() for _ in range(count)]
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        self._failure: BaseException | None = None
        self._closed = False

    def do(self, lane: int, job: Job, size: int) -> None:
        """Waits while too much waits. Raises what an earlier job has raised."""
        with self._changed:
            if not self._threads:
                self._start()
            while self._waiting and self._waiting + size > _WAITING and self._failure is None:
                self._changed.wait()
            self._raise()
            self._waiting += size
            self._lanes[lane % len(self._lanes)].append((job, size))
            self._changed.notify_all()

    def wait(self) -> None:
        """Until everything is done. Raises what a job has raised."""
        with self._changed:
            while self._waiting:
                self._changed.wait()
            self._raise()

    def forget(self) -> None:
        """What is left of an attempt that is given up."""
        with self._changed:
            while self._waiting:
                self._changed.wait()
            self._failure = None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _start(self) -> None:
        for number, lane in enumerate(self._lanes):
            thread = threading.Thread(target=self._work, args=(lane,), name=f"hand-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self, lane: deque[tuple[Job, int]]) -> None:
        while True:
            with self._changed:
                while not lane and not self._closed:
                    self._changed.wait()
                if not lane:
                    return
                job, size = lane.popleft()
                skip = self._failure is not None
            try:
                if not skip:
                    job()
            except BaseException as error:
                with self._changed:
                    self._failure = self._failure or error
            with self._changed:
                self._waiting -= size
                self._changed.notify_all()
