"""A virt-netsetup that wires nothing: its server is the real one, its work is to note the plan and answer as told.

Started as a program with the stem of its files: PLAN is what it was asked last, ANSWER what it answers. The answer is a
report, or a word for what goes wrong.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from pathlib import Path

PLAN, ANSWER = ".plan", ".answer"
REPORT = (
    b'{"interfaces":[{"name":"default","tap":"tap0","mac":"02:00:00:00:00:01","mtu":1500,"podIps":["10.1.2.3"],'
    b'"podInterface":"eth0"}]}'
)
CRASH, KILLED, HANG, NONSENSE = b"crash", b"killed", b"hang", b"nonsense"


def command(stem: Path) -> list[str]:
    return [sys.executable, __file__, str(stem)]


def main() -> None:
    from virt_core.apis.base import decode
    from virt_core.apis.netplan import NetReport
    from virt_netsetup.serve import Parent, Request

    stem, within_s = sys.argv[1], float(sys.argv[3])

    def work(request: Request) -> NetReport:
        Path(stem + PLAN).write_bytes(os.pread(request.plan, 1 << 20, 0))
        answer = Path(stem + ANSWER).read_bytes() if os.path.exists(stem + ANSWER) else REPORT
        if answer == CRASH:
            raise RuntimeError("a plan that breaks its child")
        if answer == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
        if answer == HANG:
            select.select([], [], [])
        if answer == NONSENSE:
            request.answer.send(b"{nonsense")
        return decode(answer, NetReport)

    Parent(socket.socket(fileno=0), work, within_s).run()


if __name__ == "__main__":
    main()
