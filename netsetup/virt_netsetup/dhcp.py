"""The guest's DHCP server and router advertisements: one dnsmasq for each guest NIC.

It outlives us. It runs in the Pod's network and PID namespaces and in the Pod's cgroup, so that it ends with the
launcher even if nobody is left to stop it. It listens to a guest, so it is taken for what a guest may take over: it is
nobody's user, sees no file but its own program, writes none, and makes no system call that it does not need.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Protocol

from virt_core.apis.base import Struct, decode, encode
from virt_core.apis.netplan import NetServer
from virt_netsetup import daemon
from virt_netsetup.confine import CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, CAP_NET_RAW, give_up
from virt_netsetup.dhcpserver import DhcpServer
from virt_netsetup.model import NetsetupError, Value
from virt_netsetup.process import Placement, start_time
from virt_netsetup.room import Room
from virt_netsetup.state import Folder

PROGRAM = "dnsmasq"
#: What it says once its sockets are bound.
READY = b"started, version"
# It does not start without the right to change the network, which it would need for clients that cannot be answered by
# broadcast; ours all are. It could not use it on our rules: see `seccomp`.
CAPABILITIES = (CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_NET_ADMIN)
STOP_WITHIN_S = 3.0
START_WITHIN_S = 10.0


class DhcpServers(Protocol):
    def runs(self, server: DhcpServer) -> bool: ...
    def start(self, server: DhcpServer) -> None: ...
    def stop(self, name: str) -> None: ...
    def known(self, name: str) -> bool: ...
    def alive(self, name: str) -> bool: ...
    def process(self, name: str) -> NetServer | None: ...


class Started(Struct):
    """A process id alone may be somebody else's by now; with the time of its start it cannot.

    Written before the process becomes a server, and again when it serves: whoever was killed in between leaves one that
    is not ready, and is started anew.
    """

    pid: int
    start_time: int
    digest: str
    ready: bool = True


class Dnsmasq(Value, frozen=True):
    directory: Path
    placement: Placement = Placement()

    def runs(self, server: DhcpServer) -> bool:
        started = self._started(server.name)
        return started is not None and started.ready and started.digest == _digest(server) and _alive(started)

    def alive(self, name: str) -> bool:
        """Whether it serves, whatever it was told to."""
        started = self._started(name)
        return started is not None and started.ready and _alive(started)

    def known(self, name: str) -> bool:
        """Whether there is something to stop, or to forget."""
        return self._folder().read(_file(name, "json")) is not None

    def process(self, name: str) -> NetServer | None:
        """The one that serves, for whoever wants to hear of its end."""
        started = self._started(name)
        if started is None or not started.ready:
            return None
        return NetServer(name=name, pid=started.pid, start_time=started.start_time)

    def start(self, server: DhcpServer) -> None:
        self.stop(server.name)
        folder = self._folder()
        folder.make()
        program = _find(PROGRAM)
        room = Room(program, str(folder.path))

        def prepare() -> None:
            room.enter()
            give_up(CAPABILITIES)

        def note(pid: int, ready: bool = False) -> None:
            record = Started(pid=pid, start_time=start_time(pid) or 0, digest=_digest(server), ready=ready)
            folder.write(_file(server.name, "json"), encode(record))

        try:
            words = [program, *server.arguments()]
            pid = daemon.start(words, self.placement, prepare=prepare, begun=note, ready=READY, within_s=START_WITHIN_S)
            note(pid, ready=True)
        except (NetsetupError, OSError):
            self.stop(server.name)
            raise

    def stop(self, name: str) -> None:
        started = self._started(name)
        if started is not None and _alive(started):
            _end(started)
        # The last two are of versions that let dnsmasq write them.
        self._folder().remove(*(_file(name, suffix) for suffix in ("json", "pid", "log")))

    def _started(self, name: str) -> Started | None:
        data = self._folder().read(_file(name, "json"))
        try:
            return None if data is None else decode(data, Started)
        except ValueError:
            return None

    def _folder(self) -> Folder:
        return Folder(self.directory)


def _file(name: str, suffix: str) -> str:
    return f"{name}.dnsmasq.{suffix}"


def _find(program: str) -> str:
    """Also where only root looks, whatever our own PATH says."""
    for directory in (*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/usr/local/sbin"):
        path = os.path.join(directory, program)
        if directory and os.access(path, os.X_OK):
            return os.path.realpath(path)
    raise NetsetupError("StartDhcp", f"{program} is not installed", critical=True)


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
