"""What systemd does on a real machine: starts the components and starts them again a moment after they die.

There is one supervisor for the control plane and one for each node, detached from the terminal. A node's supervisor
ends with the node's process 1, so a node that dies stays dead until somebody starts it. A supervisor that is itself
killed leaves its components running; `down` finds them by their records.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from virt_core.runtime.procs import ProcessGone, ProcessId
from virt_local.up.processes import Component, ProcessTable
from virt_local.up.state import ProcessBook

from . import commands, machine
from .errors import ClusterError
from .layout import Layout, Node

CONTROL = "control"
INIT = "init"
_STARTED_S = 60.0
_SOCKET = "run/containerd/containerd.sock"


def supervisors(layout: Layout) -> ProcessBook:
    return ProcessBook(layout.run / "supervisors")


def book(layout: Layout, role: str) -> ProcessBook:
    """The components of the control plane, or of a node."""
    return ProcessBook(layout.run / role)


def init_of(layout: Layout, node: Node) -> ProcessId | None:
    """The node's process 1, if it lives."""
    return book(layout, node.name).living().get(INIT)


def launch(layout: Layout, programs: Path, role: str) -> None:
    """Starts a supervisor in the background and returns when its components have been started."""
    told = _told(layout, role)
    told.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    told.unlink(missing_ok=True)
    log = layout.log(f"supervisor-{role}")
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.cluster", "supervise", "--cluster", layout.name, str(programs), role]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=commands.ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    _await(process, told, log, role)


def _await(process: subprocess.Popen[bytes], told: Path, log: Path, role: str) -> None:
    deadline = time.monotonic() + 2 * _STARTED_S
    while time.monotonic() < deadline:
        if told.exists():
            if reason := told.read_text().strip():
                raise ClusterError(reason)
            return
        if process.poll() is not None and not told.exists():
            raise ClusterError(f"The supervisor of {role} ended at once; {log} says why.")
        time.sleep(0.05)
    raise ClusterError(f"{role} was not started within {2 * _STARTED_S:.0f} s; {log} says how far it came.")


def _told(layout: Layout, role: str) -> Path:
    """Empty: started. Else the reason why not."""
    return layout.run / f"{role}.told"


def run(layout: Layout, programs: Path, role: str) -> None:
    """The body of a supervisor; blocks until it is told to stop, or the node dies."""
    supervisors(layout).add(role, os.getpid())
    table = ProcessTable(book(layout, role), lambda name: layout.log(name if role == CONTROL else f"{role}-{name}"))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _end(stop, table))
    body = _control_plane if role == CONTROL else _node
    try:
        body(layout, programs, role, table, stop)
    except ClusterError as err:
        _told(layout, role).write_text(str(err))
        raise
    finally:
        supervisors(layout).remove(role)


def _end(stop: threading.Event, table: ProcessTable) -> None:
    stop.set()
    table.wake()


def _control_plane(layout: Layout, programs: Path, role: str, table: ProcessTable, stop: threading.Event) -> None:
    """In order: each of them is of no use without the one before it."""
    try:
        for program in commands.control_plane(layout, programs):
            table.start(_component(program.argv, program.name, programs))
            if program.name in ("etcd", "apiserver"):
                _await_listening(program, layout.log(program.name), stop)
        _told(layout, role).touch()
        table.run(stop)
    finally:
        table.stop_all("etcd")


def _node(layout: Layout, programs: Path, role: str, table: ProcessTable, stop: threading.Event) -> None:
    node = layout.node(role)
    waiter, init = machine.start(layout, node, programs / "pause")
    book(layout, role).add(INIT, init.pid)
    threading.Thread(target=_watch, args=(init, stop, table), name="process-1", daemon=True).start()
    try:
        for program in commands.node(layout, node, programs):
            table.start(_component((*machine.enter(init), *program.argv), program.name, programs))
            if program.name == "containerd":
                _until(lambda: Path(f"/proc/{init.pid}/root", _SOCKET).exists(), "containerd", layout, node, stop)
        _told(layout, role).touch()
        table.run(stop)
    finally:
        _kill(init)
        table.stop_all(INIT)
        waiter.wait(10)
        book(layout, role).remove(INIT)


def _component(argv: tuple[str, ...], name: str, programs: Path) -> Component:
    path = f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return Component(name, argv, environment={"PATH": path})


def _watch(init: ProcessId, stop: threading.Event, table: ProcessTable) -> None:
    while not init.wait(3600.0):
        continue
    _end(stop, table)


def _kill(process: ProcessId) -> None:
    try:
        process.signal(signal.SIGKILL)
    except ProcessGone:
        return
    process.wait(10.0)


def _until(check: Callable[[], bool], name: str, layout: Layout, node: Node, stop: threading.Event) -> None:
    deadline = time.monotonic() + _STARTED_S
    while not check():
        if stop.wait(0.05) or time.monotonic() > deadline:
            log = layout.log(f"{node.name}-{name}")
            raise ClusterError(f"{name} of {node.name} did not start within {_STARTED_S:.0f} s; {log} says why.")


def _await_listening(program: commands.Program, log: Path, stop: threading.Event) -> None:
    deadline = time.monotonic() + _STARTED_S
    while not _listens(*program.listens[0]):
        if stop.wait(0.05) or time.monotonic() > deadline:
            raise ClusterError(f"{program.name} did not start within {_STARTED_S:.0f} s; {log} says why.")


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except OSError:
        return False
    return True
