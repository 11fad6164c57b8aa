"""Sockets that we make in a Pod's volume, for its launcher and for nobody else."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

from virt_core.apis import names
from virt_core.runtime.files import connectable_socket, socket_path

_MODE = 0o660
#: The kernel holds this many who are not let in yet.
_BACKLOG = 8


def make_listener(directory: int, name: str) -> socket.socket:
    """A listening socket that the launcher's user may connect to. It appears under its name when it is ready.

    Whatever the launcher may have put in its place goes. Raises IsADirectoryError, which nobody but it can have made.
    """
    unfinished = f".{name}"
    remove(directory, unfinished)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before the name exists, so that it never is open for more.
        os.fchmod(listener.fileno(), _MODE)
        listener.bind(f"{socket_path(directory)}/{unfinished}")
        _give(directory, unfinished)
        listener.listen(_BACKLOG)
        os.rename(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        listener.close()
        raise
    return listener


def _give(directory: int, name: str) -> None:
    """To the launcher's user, and to the volume's group. Only what is ours: the name may lead elsewhere by now."""
    fd = connectable_socket(directory, name)
    try:
        found = os.fstat(fd)
        if os.geteuid() == 0 and stat.S_ISSOCK(found.st_mode) and (found.st_uid, found.st_nlink) == (0, 1):
            os.chown(socket_path(fd), names.LAUNCHER_UID, os.fstat(directory).st_gid)
    finally:
        os.close(fd)


def remove(directory: int, name: str) -> None:
    """Unlinks the name itself, whatever it leads to."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
