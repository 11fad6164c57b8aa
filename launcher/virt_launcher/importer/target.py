"""Where the disk goes: a file of a claim, or a claim that is a device.

The file has another name until it is whole. What is zero is not written: a new file is full of zeros, and a device is
zeroed before anything else.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Callable
from functools import partial
from typing import Protocol

from virt_core.apis import importplan, names
from virt_core.runtime.files import SafeDir
from virt_launcher.importer.errors import Refused, clear_space_errors
from virt_launcher.importer.hands import Hands

#: So much is taken at a time.
CHUNK = 1 << 20
GRAIN = 1 << 16
_ZEROS = bytes(GRAIN)
_BLKZEROOUT = 0x127F
_STEP = 1 << 30
PART = ".disk.img.part"
#: What the owner and the group of the claim may do with the disk.
_MODE = 0o660


class Sink(Protocol):
    """What a format needs of a target."""

    def announce(self, size: int) -> None:
        """How large the disk is. Raises Refused when there is no room for it."""

    def place(self, offset: int, data: bytes, start: int = 0, end: int | None = None) -> None:
        """Bytes of `data` from `start` to `end`. What an earlier one has met may be raised here."""

    def unpack(self, offset: int, size: int, make: Callable[[], bytes]) -> None:
        """Likewise what `make` makes, which is not more than `size`; it is called in another thread."""


class Target:
    """One disk in the making."""

    what = "the claim"

    def __init__(self, fd: int, room: int) -> None:
        self._fd, self._room = fd, room
        self.size = 0
        self._hands = Hands()

    def announce(self, size: int) -> None:
        if size > self._room:
            raise Refused(
                importplan.TOO_SMALL,
                f"the disk has {size} bytes and {self.what} has room for {self._room}: ask for more",
            )
        self.size = size

    def place(self, offset: int, data: bytes, start: int = 0, end: int | None = None) -> None:
        """Clipped at the end of the disk as it is announced now."""
        end = min(len(data) if end is None else end, start + max(self.size - offset, 0))
        if start < end:
            self._hands.do(offset // GRAIN, partial(self._place, offset, data, start, end), end - start)

    def unpack(self, offset: int, size: int, make: Callable[[], bytes]) -> None:
        room = max(self.size - offset, 0)
        # Counted twice: packed and unpacked.
        self._hands.do(offset // GRAIN, partial(self._unpack, offset, room, make), 2 * size)

    def _unpack(self, offset: int, room: int, make: Callable[[], bytes]) -> None:
        data = make()
        self._place(offset, data, 0, min(len(data), room))

    def _place(self, offset: int, data: bytes, start: int, end: int) -> None:
        """Runs of blocks that are not zero."""
        view, shift, begun = memoryview(data), offset - start, start
        for at in range(start, end, GRAIN):
            after = min(at + GRAIN, end)
            if data.startswith(_ZEROS if after - at == GRAIN else _ZEROS[: after - at], at):
                self._write(shift + begun, view[begun:at])
                begun = after
        self._write(shift + begun, view[begun:end])

    def _write(self, offset: int, view: memoryview) -> None:
        if not view:
            return
        with clear_space_errors(self.what):
            while view:
                done = os.pwrite(self._fd, view, offset)
                offset, view = offset + done, view[done:]

    def sync(self) -> None:
        self._hands.wait()
        with clear_space_errors(self.what):
            os.fdatasync(self._fd)

    def read(self, offset: int, length: int) -> bytes:
        self._hands.wait()
        return os.pread(self._fd, length, offset)

    def allocate(self) -> None:
        """All of its blocks, whatever is in them."""
        self._hands.wait()
        with clear_space_errors(self.what):
            os.posix_fallocate(self._fd, 0, self.size)

    def begin(self) -> None:
        """Empty, whatever an earlier attempt has left."""
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._hands.close()
        os.close(self._fd)


class FileTarget(Target):
    """A file that gets its name when it is whole."""

    def __init__(self, directory: SafeDir, room: int) -> None:
        self._directory = directory
        fd = directory.open(PART, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, _MODE)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Refused(importplan.INVALID, f"{PART} in the claim is not a regular file")
        os.fchmod(fd, _MODE)
        super().__init__(fd, room)

    def begin(self) -> None:
        self._hands.forget()
        os.ftruncate(self._fd, 0)

    def finish(self) -> None:
        self._hands.wait()
        with clear_space_errors(self.what):
            os.ftruncate(self._fd, self.size)
            os.fsync(self._fd)
        self._directory.rename(PART, names.FILE_DISK)
        os.fsync(self._directory.fd)


class DeviceTarget(Target):
    """A device, which has no other name to hide behind: who waits for the DataVolume does not see it half made."""

    what = "the claim's device"

    def __init__(self, path: str, room: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        if not stat.S_ISBLK(os.fstat(fd).st_mode):
            os.close(fd)
            raise Refused(importplan.INVALID, f"{path} is not a block device")
        self._length = os.lseek(fd, 0, os.SEEK_END)
        super().__init__(fd, min(room, self._length) if room else self._length)

    def begin(self) -> None:
        self._hands.forget()
        for at in range(0, self._length, _STEP):
            self._zero(at, min(_STEP, self._length - at))

    def _zero(self, at: int, length: int) -> None:
        try:
            fcntl.ioctl(self._fd, _BLKZEROOUT, struct.pack("QQ", at, length))
        except OSError:
            for offset in range(at, at + length, GRAIN):
                self._write(offset, memoryview(_ZEROS)[: min(GRAIN, at + length - offset)])

    def allocate(self) -> None:
        """It has all that it has."""

    def finish(self) -> None:
        self._hands.wait()
        with clear_space_errors(self.what):
            os.fsync(self._fd)
