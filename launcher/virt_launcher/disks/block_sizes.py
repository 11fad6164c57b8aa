"""The block sizes of what a disk stands on, for disks that want the same."""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import replace

from virt_launcher.disks.sources import BlockSizes, DiskSource
from virt_launcher.errors import InvalidVMIError

#: What a device answers to: the size of its sectors, and of what it writes at once.
_LOGICAL = 0x1268
_PHYSICAL = 0x127B
_LEAST, _MOST = 512, 2 << 20
#: Guests know no larger sectors. File systems of the network speak of a megabyte.
_MOST_LOGICAL = 4096


def matched(source: DiskSource, field: str) -> DiskSource:
    """Raises InvalidVMIError."""
    try:
        sizes = _of_device(source.path) if source.block else _of_filesystem(source.path)
    except OSError as error:
        message = f"the block size of {source.path} cannot be found out: {error.strerror}"
        raise InvalidVMIError(field, message) from error
    return replace(source, blocks=sizes)


def _of_filesystem(path: str) -> BlockSizes:
    """A file system has one size for all. An image that is still being built has that of its directory."""
    size = os.statvfs(path if os.path.exists(path) else os.path.dirname(path)).f_bsize
    return bounded(size, size, size)


def _of_device(path: str) -> BlockSizes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        device = os.fstat(fd)
        if not stat.S_ISBLK(device.st_mode):
            raise OSError(0, "it is not a block device")
        return bounded(_ask(fd, _LOGICAL), _ask(fd, _PHYSICAL), _granularity(device.st_rdev))
    finally:
        os.close(fd)


def _ask(fd: int, request: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, request, bytes(4)), "little")


def _granularity(device: int) -> int:
    """Of discards; 0: the device has none, or nobody says."""
    try:
        with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue/discard_granularity") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def bounded(logical: int, physical: int, discard: int) -> BlockSizes:
    """As QEMU takes them: powers of 2 within its limits, none of them smaller than a sector."""
    logical = min(_power(logical or physical), _MOST_LOGICAL)
    physical = max(_power(physical or logical), logical)
    return BlockSizes(logical, physical, physical if discard % logical else discard)


def _power(size: int) -> int:
    """The next power of 2 below."""
    return min(max(1 << max(size.bit_length() - 1, 0), _LEAST), _MOST)
