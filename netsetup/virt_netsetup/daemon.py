"""Starting a program that stays: in the Pod's PID namespace and cgroup, as a child of the Pod's first process.

It is started by a child of a child of ours, which ends at once, so that the kernel gives the program to the first
process of its own namespace: that one collects it when it ends, and the Pod's end is not held up by us.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import NoReturn

from virt_netsetup.model import NetsetupError
from virt_netsetup.process import CLONE_NEWPID, Placement, cgroup_files, enter_namespace, fork_to_become

_GO = b"go"
_CREDENTIALS = struct.Struct("=iII")
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def start(
    command: list[str],
    placement: Placement,
    *,
    prepare: Callable[[], object],
    begun: Callable[[int], object],
    ready: bytes,
    within_s: float,
) -> int:
    """Waits until the program has written `ready` to its error output; returns our number of its process.

    `prepare` runs in the process that becomes the program, after `begun` was told its number: if we are killed before
    that, the process ends too, and there is never a program that nobody knows of. Nobody reads what it writes once it
    is ready.
    """
    join = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in _cgroups(placement)]
    placement.still_there()
    if placement.separate:
        # From here on our children belong to the Pod's PID namespace; we ourselves stay.
        enter_namespace(placement.pid_namespace(), CLONE_NEWPID)
    words, mouth = os.pipe2(os.O_CLOEXEC)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    try:
        child = fork_to_become()
        if child < 0:
            raise NetsetupError("StartDhcp", "the machine has no room for another process")
        if child == 0:
            ours.close()
            _become(command, join, prepare, theirs, mouth)
        os.waitpid(child, 0)
        os.close(mouth)
        theirs.close()
        pid = _peer(ours)
        if pid:
            begun(pid)
            with contextlib.suppress(BrokenPipeError):
                ours.send(_GO)
        return _await(words, pid, ready, within_s)
    finally:
        ours.close()
        for descriptor in (words, *join):
            os.close(descriptor)


def _cgroups(placement: Placement) -> list[str]:
    return [str(path) for path in cgroup_files(placement.pod_pid)] if placement.pod_pid else []


def _become(
    command: list[str], join: list[int], prepare: Callable[[], object], theirs: socket.socket, mouth: int
) -> NoReturn:
    """In the child, and from the second fork on in its own child."""
    try:
        for descriptor in join:
            os.write(descriptor, b"0")
        if fork_to_become():
            # Also when there was no room for another process: then nobody says that it is here.
            os._exit(0)
        os.setsid()
        theirs.send(b"here")
        if theirs.recv(len(_GO)) != _GO:
            os._exit(0)
        silence = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        for number, descriptor in enumerate((silence, mouth, mouth)):
            os.dup2(descriptor, number)
        prepare()
        os.execve(command[0], command, _ENVIRONMENT)  # noqa: S606
    except BaseException as error:
        os.write(mouth, f"{command[0]} could not be started: {error}".encode())
    os._exit(127)


def _peer(ours: socket.socket) -> int:
    """The kernel says who sent a message, by our number of it; 0 when nobody did."""
    _, ancillary, _, _ = ours.recvmsg(16, socket.CMSG_SPACE(_CREDENTIALS.size))
    for _, kind, data in ancillary:
        if kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            return int(_CREDENTIALS.unpack(data)[0])
    return 0


def _await(words: int, pid: int, ready: bytes, within_s: float) -> int:
    deadline = time.monotonic() + within_s
    said = b""
    poll = select.poll()
    poll.register(words, select.POLLIN)
    while ready not in said:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            _end(pid)
            raise NetsetupError("StartDhcp", f"it was not ready within {within_s:.0f} s")
        heard = os.read(words, 4096)
        if not heard:
            raise NetsetupError("StartDhcp", said.decode(errors="replace").strip() or "it ended at once")
        said += heard
    return pid


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
