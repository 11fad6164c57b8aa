"""Copies a volume's content so that it is as it was at one instant; see still.py for what that means."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path

from virt_core.runtime.files import SafeDir
from virt_local.storage import loops, still
from virt_local.storage.filecopy import copy_file
from virt_local.storage.treecopy import TreeCopy
from virt_local.storage.walk import ContentError, walk

_TRIES = 3
_PAUSE_S = 0.1
_ONE = "."


class InUse(RuntimeError):
    """Somebody wrote all the time, and the file system cannot copy at one instant."""

    def __init__(self) -> None:
        super().__init__(
            "its content changed while it was copied, and the file system of the data cannot copy at one instant "
            "(reflink, as XFS and Btrfs have it): freeze or stop what writes to it"
        )


def copy_block(source: Path, into: SafeDir, leaf: str) -> None:
    """A block volume's file. Raises InUse."""
    for attempt in range(_TRIES):
        loops.flush(source)
        if _copied_block(source, into, leaf):
            return
        into.unlink(leaf)
        time.sleep(_PAUSE_S * 2**attempt)
    raise InUse


def _copied_block(source: Path, into: SafeDir, leaf: str) -> bool:
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        writing = into.open(leaf, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            taken, before = time.time_ns(), {_ONE: _stamp(os.fstat(reading))}
            at_once = {_ONE} if copy_file(reading, writing) else set()
            os.fsync(writing)
            loops.flush(source)
            moved = still.changed(before, {_ONE: _stamp(os.fstat(reading))}, taken)
        finally:
            os.close(writing)
    finally:
        os.close(reading)
    return still.is_whole(moved, at_once)


def copy_tree(source: Path, into: SafeDir, leaf: str) -> None:
    """A filesystem volume's directory. Raises InUse, or ContentError for what is not copied at all."""
    for attempt in range(_TRIES):
        if _copied_tree(source, into, leaf):
            return
        remove(into, leaf)
        time.sleep(_PAUSE_S * 2**attempt)
    raise InUse


def _copied_tree(source: Path, into: SafeDir, leaf: str) -> bool:
    reading = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        taken, before = time.time_ns(), stamps(reading, settle=True)
        with into.mkdir(leaf, 0o700, exist_ok=False) as target:
            copying = TreeCopy(reading, target.fd)
            try:
                copying.run()
            except (ContentError, FileNotFoundError, FileExistsError) as error:
                if isinstance(error, ContentError) and not still.changed(before, stamps(reading), taken):
                    raise
                return False  # It changed under us.
        return still.is_whole(still.changed(before, stamps(reading), taken), copying.at_once)
    finally:
        os.close(reading)


def stamps(root: int, *, settle: bool = False) -> dict[str, still.Stamp]:
    """`settle`: what programs wrote into mapped memory counts as written from now on."""
    found = {_ONE: _stamp(os.fstat(root))}
    for entry in walk(root):
        if settle and entry.is_file:
            with entry.reading() as fd:
                os.fsync(fd)
            found[entry.path] = _stamp(os.fstat(entry.fd))
        else:
            found[entry.path] = _stamp(entry.status)
    return found


def _stamp(status: os.stat_result) -> still.Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def remove(parent: SafeDir, leaf: str) -> None:
    """A file, or a directory with all that is in it. No link is followed: rmtree works on descriptors."""
    try:
        status = os.stat(leaf, dir_fd=parent.fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        parent.unlink(leaf)
        return
    if not shutil.rmtree.avoids_symlink_attacks:
        raise RuntimeError("this platform cannot remove directories safely")
    shutil.rmtree(leaf, dir_fd=parent.fd)
