"""The resident virt-netsetup: one process beside us, asked for each Pod over a socket that nobody else has.

It is a program of its own, so that the code that works inside a Pod's namespaces stays small, single-threaded and
without gRPC. A plan takes at most its own child down. When the process itself dies, whoever waited learns it, and the
loop tries again; the process is started anew, and requests that come meanwhile wait in its next socket.
"""

from __future__ import annotations

import array
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from virt_core.apis import handoffs
from virt_core.apis.base import decode, encode
from virt_core.apis.netplan import MAX_REPORT, REQUEST, SERVE, NetPlan, NetReport
from virt_core.runtime.logs import get_logger
from virt_handler.decisions.netplans import NetworkError
from virt_handler.pods.isolation import PodProcess

log = get_logger(__name__)

TIMEOUT_S = handoffs.NETWORK_READY.deadline_s
#: What a Pod may take. Less than we wait: it is told by whoever knows, and who says nothing at all hangs itself.
WITHIN_S = TIMEOUT_S - 5
_FIRST_PAUSE_S, _MOST_PAUSE_S, _STEADY_S = 0.1, 10.0, 60.0


@dataclass(slots=True)
class _Line:
    """One life of the process: our end of its socket, its own until it has it, and what became of it."""

    ours: socket.socket
    theirs: socket.socket
    process: subprocess.Popen[bytes] | None = None
    since: float = 0.0

    @classmethod
    def make(cls) -> _Line:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(TIMEOUT_S)
        return cls(ours, theirs)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()
        if self.process is not None:
            self.process.kill()


class Netsetup:
    """`run` keeps the process alive; `ask` may be called from any thread."""

    def __init__(self, command: Sequence[str], timeout_s: float = TIMEOUT_S, within_s: float = WITHIN_S) -> None:
        self._command = [*command, SERVE, f"{within_s:g}"]
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._line = _Line.make()
        self._closed = False
        self._trouble = ""

    @property
    def pid(self) -> int:
        """Of the process, or 0 between two of them."""
        process = self._line.process
        return process.pid if process is not None and process.poll() is None else 0

    def run(self, stop: threading.Event) -> None:
        pause = _FIRST_PAUSE_S
        while not stop.is_set() and not self._closed:
            began = time.monotonic()
            self._live()
            if time.monotonic() - began > _STEADY_S:
                pause = _FIRST_PAUSE_S
            self._next_line()
            stop.wait(0 if self._closed else pause)
            pause = min(pause * 2, _MOST_PAUSE_S)
        self.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._line.close()

    def ask(self, wish: NetPlan, pod: PodProcess, netns: int) -> NetReport:
        """One Pod. Raises NetworkError."""
        line = self._line
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                self._send(line, wish, [theirs.fileno(), netns, pod.pidns, pod.process])
            report = self._read(line, ours)
        if report.error is not None:
            raise NetworkError(f"{report.error.step}: {report.error.message}", fatal=report.error.critical)
        return report

    def _live(self) -> None:
        """From the start of the process to its end."""
        line = self._line
        try:
            with self._lock:
                if self._closed:
                    return
                # Ours is for the sockets that we make in Pods; nobody else needs that.
                line.process = subprocess.Popen(
                    self._command,
                    stdin=line.theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                    umask=0o077,
                )
                line.since = time.monotonic()
                line.theirs.close()
        except OSError as error:
            self._trouble = (
                f"{self._command[0]} is not installed" if isinstance(error, FileNotFoundError) else f"{error}"
            )
            log.error("virt-netsetup cannot be started", error=str(error))
            return
        self._trouble = ""
        log.info("virt-netsetup serves", pid=line.process.pid)
        code = line.process.wait()
        if not self._closed:
            self._trouble = f"it ended with code {code}"
            log.error("virt-netsetup ended", code=code)

    def _next_line(self) -> None:
        with self._lock:
            self._line.close()
            if not self._closed:
                self._line = _Line.make()

    def _send(self, line: _Line, wish: NetPlan, descriptors: list[int]) -> None:
        plan = os.memfd_create("netplan", os.MFD_CLOEXEC)
        try:
            os.write(plan, encode(wish))
            numbers = array.array("i", [descriptors[0], plan, *descriptors[1:]])
            line.ours.sendmsg([REQUEST], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
        except OSError as error:
            raise NetworkError(f"virt-netsetup cannot be asked: {self._trouble or error}") from error
        finally:
            os.close(plan)

    def _read(self, line: _Line, ours: socket.socket) -> NetReport:
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        if not poll.poll(self._timeout_s * 1000):
            self._give_up(line)
            raise NetworkError(f"virt-netsetup did not answer within {self._timeout_s:g} s")
        data = ours.recv(MAX_REPORT)
        if not data:
            raise NetworkError(f"virt-netsetup ended before it had answered{self._trouble and ': '}{self._trouble}")
        try:
            return decode(data, NetReport)
        except msgspec.MsgspecError as error:
            raise NetworkError(f"virt-netsetup's answer cannot be read: {error}") from error

    def _give_up(self, line: _Line) -> None:
        """It answers for its children, late ones too: who had the time and says nothing is stuck."""
        if line.process is not None and time.monotonic() - line.since >= self._timeout_s:
            log.error("virt-netsetup hangs and is ended", pid=line.process.pid)
            line.process.kill()
