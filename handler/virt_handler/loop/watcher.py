"""One thread that wakes whoever waits for a file to appear or for a process to end. No polling.

Callbacks run in this thread, so they only enqueue.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from virt_core.runtime.inotify import IN_CREATE, IN_IGNORED, IN_MOVED_TO, IN_ONLYDIR, Inotify
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

Callback = Callable[[], object]


class Watcher:
    def __init__(self) -> None:
        self._inotify = Inotify()
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._files: dict[int, tuple[str, Callback]] = {}
        self._processes: dict[int, Callback] = {}
        self._closed = False
        for fd in (self._inotify.fd, self._wake):
            self._epoll.register(fd, select.EPOLLIN)

    def watch_file(self, directory_fd: int, name: str, callback: Callback) -> int:
        """Calls back whenever `name` is made in, or moved into, the directory. Returns a handle for `forget_file`."""
        with self._lock:
            watch = self._inotify.watch_fd(directory_fd, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR)
            self._files[watch] = (name, callback)
            return watch

    def forget_file(self, watch: int) -> None:
        with self._lock:
            if self._files.pop(watch, None) is not None:
                self._inotify.unwatch(watch)

    def watch_process(self, pidfd: int, callback: Callback) -> None:
        """Calls back once, when the process behind the descriptor ends. The descriptor stays the caller's."""
        with self._lock:
            self._processes[pidfd] = callback
            self._epoll.register(pidfd, select.EPOLLIN)

    def forget_process(self, pidfd: int) -> None:
        """Must be called before the descriptor is closed."""
        with self._lock:
            if self._processes.pop(pidfd, None) is not None:
                self._epoll.unregister(pidfd)

    def run(self, stop: threading.Event) -> None:
        waker = threading.Thread(target=self._wake_on, args=(stop,), name="watcher-stop", daemon=True)
        waker.start()
        while not stop.is_set():
            for fd, _events in self._epoll.poll():
                for callback in self._callbacks(fd):
                    callback()
        waker.join()

    def _wake_on(self, stop: threading.Event) -> None:
        """A thread in `poll` does not hear of an Event."""
        stop.wait()
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """After `run` has returned."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._epoll.close()
                self._inotify.close()
                os.close(self._wake)

    def _callbacks(self, fd: int) -> list[Callback]:
        if fd == self._wake:
            os.eventfd_read(fd)
            return []
        if fd == self._inotify.fd:
            return self._file_callbacks()
        with self._lock:
            callback = self._processes.pop(fd, None)
            if callback is None:
                return []
            self._epoll.unregister(fd)
            return [callback]

    def _file_callbacks(self) -> list[Callback]:
        found: dict[int, Callback] = {}
        with self._lock:
            for event in self._inotify.wait(0):
                if event.overflow:
                    log.warning("the inotify queue overflowed, so every waiter looks again")
                    found.update((watch, callback) for watch, (_name, callback) in self._files.items())
                elif event.mask & IN_IGNORED:
                    self._files.pop(event.watch, None)
                elif (entry := self._files.get(event.watch)) and entry[0] == event.name:
                    found[event.watch] = entry[1]
        return list(found.values())
