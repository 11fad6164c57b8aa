"""Tells when a process ends, also one that is not our child: a thread that sleeps on pidfds."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from virt_core.runtime.procs import ProcessGone, ProcessId


class ExitWatcher:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        self._callbacks: dict[int, tuple[ProcessId, Callable[[], None]]] = {}
        self._watched: set[ProcessId] = set()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)

    def watch(self, process: ProcessId, callback: Callable[[], None]) -> None:
        """Calls back once, from the watcher's thread; at once if the process has ended already. Twice is once."""
        with self._lock:
            if process in self._watched:
                return
            self._watched.add(process)
        try:
            fd = process.open()
        except ProcessGone:
            with self._lock:
                self._watched.discard(process)
            callback()
            return
        with self._lock:
            self._callbacks[fd] = (process, callback)
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for fd, _ in self._epoll.poll():
                if fd != self._wake:
                    self._ended(fd)

    def wake(self) -> None:
        """Lets `run` look at its stop."""
        os.eventfd_write(self._wake, 1)

    def _ended(self, fd: int) -> None:
        with self._lock:
            process, callback = self._callbacks.pop(fd)
            self._watched.discard(process)
        self._epoll.unregister(fd)
        os.close(fd)
        callback()
