"""A volume's content, entry by entry, by descriptors only.

Whoever mounts the volume chooses names, links and devices in it, and may change them while we look. So an entry is
first opened as a mere place (O_PATH, no link followed, no other file system), its type is taken from that descriptor,
and only a regular file or a directory is then opened for reading, through the descriptor. What it takes is bounded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from virt_core.runtime.files import open_beneath
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

MOST_ENTRIES = 500_000
MOST_COUNTED = 50_000
DEEPEST = 200


class ContentError(Exception):
    """The content of a volume is such that we do not touch it; the text says what."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`fd` is an O_PATH descriptor, open while the walk is at this entry."""

    path: str
    name: str
    fd: int
    status: os.stat_result
    directory: int

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Of a regular file or a directory: a descriptor to read from."""
        fd = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)


def walk(root: int, most: int = MOST_ENTRIES) -> Iterator[Entry]:
    """All entries below a directory, parents first. What disappears while we look is left out."""
    device = os.fstat(root).st_dev
    for count, entry in enumerate(_below(root, "", device, 0)):
        if count >= most:
            raise ContentError(f"the volume has more than {most} files")
        yield entry


def _below(directory: int, path: str, device: int, depth: int) -> Iterator[Entry]:
    if depth > DEEPEST:
        raise ContentError(f"directories are nested deeper than {DEEPEST}")
    for name in sorted(os.listdir(directory)):
        try:
            fd = open_beneath(directory, name, os.O_PATH | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            entry = Entry(f"{path}{name}", name, fd, os.fstat(fd), directory)
            if entry.status.st_dev != device:
                raise ContentError(f"{entry.path!r} is on another file system")
            yield entry
            if entry.is_directory:
                with entry.reading() as inner:
                    yield from _below(inner, f"{entry.path}/", device, depth + 1)
        finally:
            os.close(fd)


def disk_usage(root: int) -> int:
    """Bytes on the disk, each file once. Content that is too much to count, or changes too fast, counts as far as we
    looked: whoever does that has used less of what he was promised."""
    seen: dict[int, int] = {}
    try:
        for entry in walk(root, MOST_COUNTED):
            seen[entry.status.st_ino] = entry.status.st_blocks * 512
    except (ContentError, OSError) as error:
        log.info("a volume was not measured to its end", error=str(error))
    return sum(seen.values())
