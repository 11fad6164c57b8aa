"""Whether who connected to a socket is a process of the Pod that the socket is for."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable

from virt_core.rpc.peer import peer_credentials, peer_pidfd

PodOf = Callable[[int], str | None]


def is_of_pod(connection: socket.socket, pod_uid: str, pod_of: PodOf) -> bool:
    """By the cgroup of the process that called connect(). Who has ended meanwhile is nobody's."""
    pid = peer_credentials(connection).pid
    if pid <= 0:
        return False
    try:
        pidfd = peer_pidfd(connection)
    except ProcessLookupError:
        return False
    try:
        # In this order: while the process has not ended, its number is nobody else's.
        return pod_of(pid) == pod_uid and not _has_ended(pidfd)
    finally:
        os.close(pidfd)


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
