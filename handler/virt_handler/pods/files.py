"""Files in the volumes of Pods: written by a VM's own process, so never followed, only opened.

Every path is opened beneath the directory of Pods with openat2 (no symlinks, no magic links, no way out), and what was
opened is looked at before it is used. A socket is connected through its descriptor: re-opening the path would be a
race, and the kernel's limit of 108 bytes for the path of a socket does not matter.
"""

from __future__ import annotations

import errno
import os
import re
import socket

from virt_core.apis import names
from virt_core.runtime.files import connectable_socket, open_beneath, socket_path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class UnsafeFileError(PermissionError):
    """Something in a Pod's volume is not what it should be: a link, another kind of file, a way out."""


def checked_name(name: str) -> str:
    """A name that is one plain path segment; UIDs come from objects that users can write to."""
    if not _NAME.fullmatch(name):
        raise UnsafeFileError(errno.EPERM, f"{name!r} is not a plain file name")
    return name


class PodFiles:
    def __init__(self, pods_dir: str) -> None:
        # The directory itself is the administrator's and may well be reached over a symlink.
        self._root = os.open(pods_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._root)

    def pod_exists(self, pod_uid: str) -> bool:
        try:
            os.close(self._open(checked_name(pod_uid), os.O_DIRECTORY))
        except FileNotFoundError:
            return False
        return True

    def open_volume(self, pod_uid: str, volume: str) -> int:
        """A descriptor (O_PATH) of the root of one of the Pod's emptyDir volumes."""
        return self._open(f"{checked_name(pod_uid)}/{names.EMPTY_DIR_SEGMENT}/{checked_name(volume)}", os.O_DIRECTORY)

    def open_socket(self, pod_uid: str, volume: str, *below: str) -> int:
        """A descriptor (O_PATH) of a socket in one of the Pod's volumes. Raises FileNotFoundError, UnsafeFileError."""
        path = "/".join(
            [checked_name(pod_uid), names.EMPTY_DIR_SEGMENT, checked_name(volume), *map(checked_name, below)]
        )
        try:
            return connectable_socket(self._root, path)
        except OSError as error:
            raise _translated(error, path) from error

    def _open(self, path: str, flags: int) -> int:
        try:
            return open_beneath(self._root, path, os.O_PATH | os.O_CLOEXEC | flags)
        except OSError as error:
            raise _translated(error, path) from error


def _translated(error: OSError, path: str) -> OSError:
    if error.errno in (errno.ELOOP, errno.EXDEV):
        return UnsafeFileError(errno.EPERM, f"{path} leads over a link or out of its volume")
    if error.errno in (errno.ENOTSOCK, errno.ENOTDIR):
        return UnsafeFileError(errno.EPERM, f"{path} is another kind of file")
    return error


def connect(socket_fd: int, timeout_s: float) -> socket.socket:
    """Connects to the very socket behind a descriptor of `PodFiles.open_socket`."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(timeout_s)
        client.connect(socket_path(socket_fd))
    except BaseException:
        client.close()
        raise
    return client
