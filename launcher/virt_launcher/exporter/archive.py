"""The files of a claim as a tar archive. Links go in as links; devices, sockets and FIFOs stay out.

Every directory is opened beneath the one before it; what was opened is what is packed.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Iterator

from virt_core.runtime.files import open_beneath

CHUNK = 1 << 18
_MAX_DEPTH = 64
_MAX_ENTRIES = 1_000_000
_LEFT_OUT = frozenset({"lost+found"})
_BLOCK = tarfile.BLOCKSIZE


class NotReadable(Exception):
    """A file that cannot be packed; the message names it."""


def check(root: str) -> None:
    """Opens everything once, so that an archive that cannot become whole is not begun. Raises NotReadable."""
    for _ in _walk(root):
        pass


def packed(root: str) -> Iterator[bytes]:
    """Raises NotReadable, OSError."""
    for info, fd in _walk(root):
        yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if fd is not None:
            yield from _content(info, fd)
    yield bytes(2 * _BLOCK)


def _content(info: tarfile.TarInfo, fd: int) -> Iterator[bytes]:
    """As long as its header says."""
    left = info.size
    while left:
        data = os.read(fd, min(CHUNK, left))
        if not data:
            raise OSError(errno.EIO, f"{info.name} has become shorter")
        left -= len(data)
        yield data
    yield bytes(-info.size % _BLOCK)


def _walk(root: str) -> Iterator[tuple[tarfile.TarInfo, int | None]]:
    """Each entry, with a descriptor that is open until the next one is asked for, if it is a file."""
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    count = 0
    try:
        for info, fd in _directory(top, ".", 0):
            count += 1
            if count > _MAX_ENTRIES:
                raise NotReadable(f"the volume has more than {_MAX_ENTRIES} files")
            yield info, fd
    finally:
        os.close(top)


def _directory(fd: int, name: str, depth: int) -> Iterator[tuple[tarfile.TarInfo, int | None]]:
    if depth > _MAX_DEPTH:
        raise NotReadable(f"{name} is more than {_MAX_DEPTH} directories deep")
    yield _info(name, os.fstat(fd), tarfile.DIRTYPE), None
    for entry in sorted(os.listdir(fd)):
        if depth == 0 and entry in _LEFT_OUT:
            continue
        yield from _entry(fd, entry, f"{name}/{entry}", depth)


def _entry(parent: int, entry: str, name: str, depth: int) -> Iterator[tuple[tarfile.TarInfo, int | None]]:
    found = os.stat(entry, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        info = _info(name, found, tarfile.SYMTYPE)
        info.linkname = os.readlink(entry, dir_fd=parent)
        yield info, None
        return
    if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
        return
    try:
        fd = open_beneath(parent, entry, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise NotReadable(f"{name} cannot be read: {error.strerror}") from error
    try:
        opened = os.fstat(fd)
        if stat.S_ISDIR(opened.st_mode):
            yield from _directory(fd, name, depth + 1)
        elif stat.S_ISREG(opened.st_mode):
            yield _info(name, opened, tarfile.REGTYPE), fd
    finally:
        os.close(fd)


def _info(name: str, found: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, stat.S_IMODE(found.st_mode)
    info.uid, info.gid, info.mtime = found.st_uid, found.st_gid, int(found.st_mtime)
    info.size = found.st_size if kind == tarfile.REGTYPE else 0
    return info
