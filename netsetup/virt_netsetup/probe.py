"""Asks guests whether they are there, by frames put into their TAPs: nobody but the guest gets them.

What it answers is read before the rules at the TAP see it, so an answer that they would drop is known too. All guests
of a Pod are asked at once. It takes a fixed time at most, a few small frames, and reads a bounded number of them.
"""

from __future__ import annotations

import ipaddress
import select
import socket
import time
from collections.abc import Sequence

from virt_core.apis.netplan import NetProbe
from virt_netsetup.frames import Question, heard
from virt_netsetup.model import Value

WITHIN_S = 1.5
TRIES = 3
#: A guest may flood us meanwhile.
MOST_FRAMES = 4096
MOST_HEARD = 8
_ALL = 0x0003
_LONGEST = 2048


class Asked(Value, frozen=True):
    """What is asked at one TAP, whose guest has these addresses."""

    tap: str
    own: tuple[str, ...]
    questions: tuple[Question, ...]


class Line:
    """One TAP that is listened to."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.probes = {(each.kind, each.ip): NetProbe(kind=each.kind, ip=each.ip) for each in asked.questions}
        self.heard: dict[str, None] = {}
        self._sent: dict[tuple[str, str], float] = {}
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.htons(_ALL))
        self.socket.setblocking(False)
        self.socket.bind((asked.tap, 0))

    @property
    def waits(self) -> bool:
        return any(not probe.mac for probe in self.probes.values())

    def ask(self) -> None:
        for question in self.asked.questions:
            key = (question.kind, question.ip)
            if not self.probes[key].mac:
                self._sent.setdefault(key, time.monotonic())
                self.socket.send(question.frame())

    def read(self) -> None:
        """One frame."""
        frame, address = self.socket.recvfrom(_LONGEST)
        found = heard(frame) if address[2] != socket.PACKET_OUTGOING else None
        if found is None:
            return
        probe = self.probes.get(found.answers)
        if probe is not None and not probe.mac:
            probe.mac, probe.ms = found.mac, round((time.monotonic() - self._sent[found.answers]) * 1000, 1)
        if _is_foreign(found.sender, self.asked.own) and len(self.heard) < MOST_HEARD:
            self.heard[found.sender] = None


def _is_foreign(sender: str, own: tuple[str, ...]) -> bool:
    """Under an address that it was not given. Those of its link alone are every guest's own affair in IPv6."""
    if not sender or sender in own:
        return False
    ip = ipaddress.ip_address(sender)
    return not ip.is_unspecified and not (ip.version == 6 and ip.is_link_local)


def ask(wanted: Sequence[Asked], within_s: float = WITHIN_S) -> dict[str, Line]:
    """By TAP. One that cannot be listened to, because it is down, is not in it."""
    lines: dict[str, Line] = {}
    try:
        for asked in wanted:
            if (line := _open(asked)) is not None:
                lines[asked.tap] = line
        _listen(list(lines.values()), within_s)
    finally:
        for line in lines.values():
            line.socket.close()
    return lines


def _open(asked: Asked) -> Line | None:
    try:
        line = Line(asked)
    except OSError:
        return None
    try:
        line.ask()
    except OSError:
        line.socket.close()
        return None
    return line


def _listen(lines: list[Line], within_s: float) -> None:
    began, frames, again = time.monotonic(), 0, 1
    poll, by_descriptor = select.poll(), {line.socket.fileno(): line for line in lines}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    while frames < MOST_FRAMES and any(line.waits for line in lines):
        passed = time.monotonic() - began
        if passed >= within_s:
            return
        if passed >= again * within_s / TRIES:
            again += 1
            _ask_again(lines)
        next_at = min(again * within_s / TRIES, within_s)
        for descriptor, _ in poll.poll(max(next_at - passed, 0.0) * 1000 + 1):
            frames += 1
            _read(by_descriptor[descriptor])


def _ask_again(lines: list[Line]) -> None:
    for line in lines:
        try:
            line.ask()
        except OSError:
            # It went down meanwhile; what was heard so far counts.
            continue


def _read(line: Line) -> None:
    try:
        line.read()
    except OSError:
        # The link went down: the socket tells it once, as an error.
        return
