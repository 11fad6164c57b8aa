"""The state of an instance is root's alone: tenants' Secrets, tokens, keys and sockets lie in it.

Checked at each `up`, before anything is written: nobody else can put something in its place, its directories open for
root only, and what an older version left open is closed. What is mounted into a Pod keeps the mode that the Pod needs:
its processes see it by the mount, not by the way that leads there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from virt_core.runtime.files import private_directory
from virt_local.up.errors import UpError, place_error
from virt_local.up.instance import OWN_ENTRIES, Instance
from virt_local.up.state import load_settings

#: Directories of a node, by the depth at which they lie below the instance's.
_DEPTH = 3


def secure(instance: Instance) -> None:
    """Raises UpError, in words for the person at the terminal."""
    try:
        place = Path(os.path.realpath(instance.data_dir))
        _check_way(instance.data_dir)
        _check_way(place)
        _check_content(instance.data_dir)
        private_directory(str(place))
        for directory in _own_directories(place):
            private_directory(str(directory))
        _close_logs(instance.log_dir)
    except OSError as err:
        raise place_error(err) from err


def _check_way(path: Path) -> None:
    """Whoever may change a directory above ours may swap ours for another."""
    for step in reversed((path, *path.parents)):
        try:
            found = os.lstat(step)
        except FileNotFoundError:
            return
        if found.st_uid not in _trusted():
            raise PermissionError(errno.EPERM, f"it belongs to uid {found.st_uid} and not to root", str(step))
        if step != path and _open_to_others(found):
            raise PermissionError(errno.EPERM, "others may rename what is in it", str(step))


def _trusted() -> set[int]:
    """Root, and who became root by sudo: with a data directory in one's own home nobody gains anything."""
    return {0, os.geteuid(), int(os.environ.get("SUDO_UID") or 0)}


def _open_to_others(found: os.stat_result) -> bool:
    if stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX:
        return False
    return bool(found.st_mode & stat.S_IWOTH) or bool(found.st_mode & stat.S_IWGRP and found.st_gid != 0)


def _check_content(path: Path) -> None:
    """Somebody's home or /tmp, given by mistake, must not be closed to its users."""
    if not path.is_dir() or load_settings(path) is not None:
        return
    if foreign := sorted(set(os.listdir(path)) - OWN_ENTRIES):
        raise UpError(f"{path} is not empty ({foreign[0]}): choose another place with --data-dir.", exit_code=2)


def _own_directories(place: Path) -> Iterator[Path]:
    """Those of ours that exist: the first level, and of each node down to its Pods."""
    levels = [place / name for name in sorted(OWN_ENTRIES) if _is_directory(place / name)]
    yield from levels
    nodes = [place / "nodes"] if _is_directory(place / "nodes") else []
    for _ in range(_DEPTH - 1):
        nodes = [Path(entry) for each in nodes for entry in os.scandir(each) if entry.is_dir(follow_symlinks=False)]
        yield from nodes


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _close_logs(directory: Path) -> None:
    for path in directory.glob("*.log*"):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fchmod(fd, 0o600)
        finally:
            os.close(fd)
