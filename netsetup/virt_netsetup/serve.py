"""virt-netsetup as it stays on a node: one process with everything loaded, and a child of it for each Pod.

The parent reads nothing of what it is asked: it takes a packet with descriptors, forks, and looks after the child. What
a plan can do wrong it does in the child, which enters the Pod's namespaces, answers and ends. A child that ends without
an answer, or takes too long, is answered for here. Nobody else can reach the parent: its socket has no name, and when
virt-handler's end is closed, it ends, and its children with it.
"""

from __future__ import annotations

import array
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import NoReturn

from virt_core.apis.base import encode
from virt_core.apis.netplan import DESCRIPTORS, REQUEST, NetReport, NetReportError
from virt_netsetup.model import Value
from virt_netsetup.process import end_with_parent

#: More than virt-handler asks for at a time. The others wait in the socket.
MOST_CHILDREN = 32
_NUMBER = array.array("i").itemsize


class Request(Value, frozen=True):
    """The descriptors of one request."""

    answer: socket.socket
    plan: int
    netns: int
    pidns: int
    process: int

    def close(self) -> None:
        """All but the way to answer."""
        for descriptor in (self.plan, self.netns, self.pidns, self.process):
            os.close(descriptor)


Work = Callable[[Request], NetReport]


class Child(Value, frozen=True):
    pid: int
    descriptor: int
    answer: socket.socket
    #: Nothing for one that was killed: it counts until it has ended, but nobody waits for its answer.
    deadline: float | None

    def forget(self) -> None:
        os.close(self.descriptor)
        self.answer.close()


class Parent:
    """One thread, and no waiting but in `run`."""

    def __init__(self, control: socket.socket, work: Work, within_s: float) -> None:
        self._control, self._work, self._within_s = control, work, within_s
        self._children: dict[int, Child] = {}

    def run(self) -> None:
        """Until the other end of the socket is closed."""
        # What is loaded by now is never garbage: a child that looked for some would copy all of its pages.
        gc.collect()
        gc.freeze()
        while True:
            events = dict(self._poll())
            for descriptor in events.keys() & self._children.keys():
                self._ended(self._children.pop(descriptor))
            for child in self._late():
                self._end(child)
            if self._control.fileno() in events and not self._accept():
                return

    def _poll(self) -> list[tuple[int, int]]:
        poll = select.poll()
        for descriptor in self._children:
            poll.register(descriptor, select.POLLIN)
        if len(self._children) < MOST_CHILDREN:
            poll.register(self._control, select.POLLIN)
        deadlines = [child.deadline for child in self._children.values() if child.deadline is not None]
        left = max(0.0, min(deadlines) - time.monotonic()) * 1000 + 1 if deadlines else None
        return poll.poll(left)

    def _accept(self) -> bool:
        """False: nobody is left who could ask."""
        data, descriptors = _receive(self._control)
        if not data and not descriptors:
            return False
        request = _request(data, descriptors)
        if request is None:
            say(f"a packet of {len(data)} bytes and {len(descriptors)} descriptors is no request")
        else:
            self._fork(request)
        return True

    def _fork(self, request: Request) -> None:
        parent, deadline = os.getpid(), time.monotonic() + self._within_s
        try:
            pid = os.fork()
        except OSError as error:
            _tell(request.answer, f"virt-netsetup cannot start a process: {error.strerror}")
            request.answer.close()
        else:
            if pid == 0:
                self._be_child(request, parent)
            child = Child(pid, os.pidfd_open(pid), request.answer, deadline)
            self._children[child.descriptor] = child
        request.close()

    def _be_child(self, request: Request, parent: int) -> NoReturn:
        code = 1
        try:
            gc.disable()
            end_with_parent(parent)
            self._control.close()
            for child in self._children.values():
                child.forget()
            report = self._work(request)
            request.answer.send(encode(report))
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _late(self) -> list[Child]:
        now = time.monotonic()
        return [child for child in self._children.values() if child.deadline is not None and child.deadline <= now]

    def _end(self, child: Child) -> None:
        signal.pidfd_send_signal(child.descriptor, signal.SIGKILL)
        _tell(child.answer, f"virt-netsetup did not end within {self._within_s:g} s")
        self._children[child.descriptor] = Child(child.pid, child.descriptor, child.answer, None)

    @staticmethod
    def _ended(child: Child) -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        if code:
            _tell(child.answer, f"virt-netsetup {_end_of(code)} before it had answered")
        child.forget()


def _end_of(code: int) -> str:
    return f"ended with code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"


def _tell(answer: socket.socket, why: str) -> None:
    """Who asked reads one packet: after the child's own answer this one is not seen."""
    report = NetReport(error=NetReportError(step="process", message=why))
    try:
        answer.send(encode(report), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        return


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    room = socket.CMSG_SPACE(len(DESCRIPTORS) * _NUMBER)
    data, ancillary, _, _ = control.recvmsg(len(REQUEST) + 1, room, socket.MSG_CMSG_CLOEXEC)
    found = array.array("i")
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(value[: len(value) - len(value) % _NUMBER])
    return data, list(found)


def _request(data: bytes, descriptors: list[int]) -> Request | None:
    """Nothing for what is none; its descriptors are closed then."""
    if data == REQUEST and len(descriptors) == len(DESCRIPTORS):
        try:
            return Request(socket.socket(fileno=descriptors[0]), *descriptors[1:])
        except OSError:
            pass
    _close(descriptors)
    return None


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def say(text: str) -> None:
    """To the log of virt-handler, which has our error output."""
    sys.stderr.write(f"virt-netsetup: {text}\n")
    sys.stderr.flush()
