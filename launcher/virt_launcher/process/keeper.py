"""Keeps the container of a failed launcher, for who wants to look at what it left (an annotation of the VMI).

The launcher then runs as a child. When it fails, nothing of the machine may live on: its processes, which come to us
as orphans, are ended. A launcher's socket on which nobody listens tells virt-handler that the launcher is gone, even if
it never got so far as to make one. Imported only when it is asked for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path

from virt_core.runtime.logs import get_logger
from virt_launcher.process.children import STOP_SIGNALS, Children, block_signals

log = get_logger(__name__)

_WATCHED = frozenset({signal.SIGCHLD, *STOP_SIGNALS})


def keep(launcher_socket: Path) -> None:
    """Returns in a child, which is to be the launcher; the caller's own process ends in here. Before any thread."""
    block_signals()
    Children().adopt_orphans()
    child = os.fork()
    if child:
        os._exit(_watch_over(child, launcher_socket))


def _watch_over(launcher: int, launcher_socket: Path) -> int:
    """The code of the launcher's exit: at once after a good end, else when somebody ends the container."""
    failed = 0
    while True:
        number = signal.sigwait(_WATCHED)
        if number != signal.SIGCHLD:
            if failed:
                return failed
            os.kill(launcher, number)
        elif not failed:
            code = _reap(launcher)
            if code == 0:
                return 0
            if code is not None:
                failed = code
                _end_orphans()
                _leave_dead_socket(launcher_socket)
                log.warning("the launcher failed; its container is kept", exit_code=code)


def _reap(launcher: int) -> int | None:
    """How the launcher ended, if it did; takes every other dead child as well."""
    found: int | None = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == launcher:
                code = os.waitstatus_to_exitcode(ended[1])
                found = code if code >= 0 else 128 - code
    return found


def _end_orphans() -> None:
    """Until none is left: the children of one that is ended come to us, too. What the node put into the Pod, such as
    its DHCP server, belongs to another user and goes with the Pod."""
    foreign: set[int] = set()
    while pids := _children() - foreign:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except PermissionError:
                foreign.add(pid)
            except (ProcessLookupError, ChildProcessError):
                pass  # It ended by itself.


def _children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def _leave_dead_socket(path: Path) -> None:
    if path.exists():
        return
    try:
        with socket.socket(socket.AF_UNIX) as nobody:
            nobody.bind(str(path))
    except OSError as error:
        log.error("virt-handler cannot be told that the launcher is gone", path=str(path), error=str(error))
