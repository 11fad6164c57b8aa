"""Blocks of a file that came before the tables that say what they are. A few are kept in memory, more of them in a file
without a name in the claim itself: an image that was written in its usual order needs neither."""

from __future__ import annotations

import os
from collections.abc import Callable

from virt_launcher.importer.errors import clear_space_errors
from virt_launcher.importer.formats.base import refuse

_IN_MEMORY = 16 << 20


class Early:
    def __init__(self, make_file: Callable[[], int] | None) -> None:
        """`make_file` opens a file without a name; None: there is no place for one."""
        self._make_file = make_file
        self._memory: dict[int, bytes] = {}
        self._held = 0
        self._places: dict[int, tuple[int, int]] = {}
        self._fd, self._end = -1, 0

    def keep(self, number: int, data: bytes) -> None:
        if self._held + len(data) <= _IN_MEMORY:
            self._memory[number] = data
            self._held += len(data)
            return
        if self._fd < 0:
            self._fd = self._open()
        with clear_space_errors("the claim, for what came before its tables"):
            os.pwrite(self._fd, data, self._end)
        self._places[number] = (self._end, len(data))
        self._end += len(data)

    def _open(self) -> int:
        if self._make_file is None:
            raise refuse(
                "its tables come after its data, and a device has no place to put that aside; rewrite it with"
                " `qemu-img convert -O qcow2`"
            )
        return self._make_file()

    def get(self, number: int) -> bytes | None:
        if (data := self._memory.get(number)) is not None:
            return data
        place = self._places.get(number)
        return None if place is None else os.pread(self._fd, place[1], place[0])

    def drop(self) -> None:
        self._memory.clear()
        self._places.clear()
        self._held = 0
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
