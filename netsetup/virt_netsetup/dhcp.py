"""The guest's DHCP server and router advertisements: one dnsmasq for each guest NIC.

It outlives us. It runs in the Pod's network and PID namespaces and in the Pod's cgroup, so that it ends with the
launcher even if nobody is left to stop it, and as nobody, with the few capabilities that dnsmasq keeps for itself.
It reads no file of the host and writes none but its process id and its log, both in our state directory.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Protocol

from virt_core.apis.base import Struct, decode, encode
from virt_netsetup.dhcpserver import DhcpServer
from virt_netsetup.model import NetsetupError, Value
from virt_netsetup.process import Placement, host_pid, run, start_time

PROGRAM = "dnsmasq"
STOP_WITHIN_S = 3.0
START_WITHIN_S = 10.0


class DhcpServers(Protocol):
    def runs(self, server: DhcpServer) -> bool: ...
    def start(self, server: DhcpServer) -> None: ...
    def stop(self, name: str) -> None: ...
    def pid_of(self, name: str) -> int | None: ...


class Started(Struct):
    """A process id alone may be somebody else's by now; with the time of its start it cannot."""

    pid: int
    start_time: int
    digest: str


class Dnsmasq(Value, frozen=True):
    directory: Path
    placement: Placement = Placement()

    def runs(self, server: DhcpServer) -> bool:
        started = self._started(server.name)
        return started is not None and started.digest == _digest(server) and _alive(started)

    def pid_of(self, name: str) -> int | None:
        started = self._started(name)
        return started.pid if started is not None and _alive(started) else None

    def start(self, server: DhcpServer) -> None:
        self.stop(server.name)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        pid_file, log = self._file(server.name, "pid"), self._file(server.name, "log")
        command = [PROGRAM, *server.arguments(), f"--pid-file={pid_file}", f"--log-facility={log}"]
        # dnsmasq goes into the background once its sockets are bound: when the command ends, it serves.
        code, complaint = run(command, self.placement, START_WITHIN_S)
        if code != 0:
            raise NetsetupError("StartDhcp", f"dnsmasq did not start: {complaint or f'exit code {code}'}")
        pid = host_pid(int(pid_file.read_text()), self.placement)
        record = Started(pid=pid, start_time=start_time(pid) or 0, digest=_digest(server))
        self._file(server.name, "json").write_bytes(encode(record))

    def stop(self, name: str) -> None:
        started = self._started(name)
        if started is not None and _alive(started):
            _end(started)
        for suffix in ("json", "pid", "log"):
            self._file(name, suffix).unlink(missing_ok=True)

    def _started(self, name: str) -> Started | None:
        try:
            return decode(self._file(name, "json").read_bytes(), Started)
        except (FileNotFoundError, ValueError):
            return None

    def _file(self, name: str, suffix: str) -> Path:
        return self.directory / f"{name}.dnsmasq.{suffix}"


def _digest(server: DhcpServer) -> str:
    return hashlib.sha256("\0".join(server.arguments()).encode()).hexdigest()


def _alive(started: Started) -> bool:
    return start_time(started.pid) == started.start_time


def _end(started: Started) -> None:
    """By a pid descriptor: between a look at the start time and the signal the number could change hands."""
    try:
        descriptor = os.pidfd_open(started.pid)
    except ProcessLookupError:
        return
    try:
        if not _alive(started):
            return
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        if not _ended(descriptor):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            _ended(descriptor)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _ended(descriptor: int) -> bool:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + STOP_WITHIN_S
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
