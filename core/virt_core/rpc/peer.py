"""Who is at the other end of a unix socket, as the kernel says."""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass

_UCRED = struct.Struct("iII")
#: Linux 6.5; missing in Python's socket module.
_SO_PEERPIDFD = 77


@dataclass(frozen=True, slots=True)
class PeerCredentials:
    pid: int
    uid: int
    gid: int


def peer_credentials(connection: socket.socket) -> PeerCredentials:
    """Of a connected unix socket. For the connecting side it is whoever called listen()."""
    return PeerCredentials(*_UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def peer_pidfd(connection: socket.socket) -> int:
    """A descriptor of the process at the other end, which the caller closes. Raises ProcessLookupError: it has ended.

    Older kernels tell only the number, which could have gone to another process between connect() and now.
    """
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno not in (errno.ENOPROTOOPT, errno.EINVAL):
            raise
    return os.pidfd_open(peer_credentials(connection).pid)


def listener_credentials(path: str, timeout_s: float = 5.0) -> PeerCredentials:
    """Who listens on a socket: connects for a moment. Give it `files.socket_path(fd)` for a path in a Pod's volume."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(path)
        return peer_credentials(connection)
