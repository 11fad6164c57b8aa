"""virt-netsetup as virt-handler keeps it, asked about the Pod of a lab, and one that can be stopped at any change."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from virt_core.apis.base import decode, to_plain
from virt_core.apis.netplan import NetPlan
from virt_handler.pods.isolation import PodProcess
from virt_handler.pods.netsetup import Netsetup

from .lab import Lab

PROGRAM = [sys.executable, "-m", "virt_netsetup.main"]


class Resident:
    def __init__(self, command: list[str] = PROGRAM, within_s: float = 25.0) -> None:
        self.netsetup = Netsetup(command, within_s=within_s)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.netsetup.run, args=(self._stop,))

    def __enter__(self) -> Resident:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.netsetup.close()
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def pid(self) -> int:
        return self.netsetup.pid

    def children(self) -> list[int]:
        pid = self.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def ask(
        self, lab: Lab, action: str, interfaces: list[dict[str, Any]], process: int = 0, **more: Any
    ) -> dict[str, Any]:
        """The report. `process` is a descriptor of the Pod's process; ours without one. Raises NetworkError."""
        plan = decode(json.dumps(lab.plan(action, interfaces, **more)).encode(), NetPlan)
        netns = os.open(f"/run/netns/{lab.pod}", os.O_RDONLY | os.O_CLOEXEC)
        pidns = os.open(f"/proc/{plan.pod_pid or 'self'}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        pod = PodProcess(pidns, os.dup(process) if process else os.pidfd_open(plan.pod_pid or os.getpid()))
        try:
            report: dict[str, Any] = to_plain(self.netsetup.ask(plan, pod, netns))
            return report
        finally:
            pod.close()
            os.close(netns)


#: The program, with something in it that happens after so many changes: `NUMBER WORD` in the file that it is given.
ARMED = """
import os, select, signal, sys
from virt_netsetup import daemon, dhcp, firewall, kernel, main

file, changes = sys.argv.pop(1), 0

def tick():
    global changes
    changes += 1
    try:
        number, word = open(file).read().split()
    except FileNotFoundError:
        return
    if changes == int(number):
        if word == "hang":
            open(file + ".there", "w").close()
            select.select([], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

def armed(owner, name):
    act = getattr(owner, name)
    def instead(*words, **more):
        result = act(*words, **more)
        tick()
        return result
    setattr(owner, name, instead)

for name in ("add_link", "add_tap", "delete_link", "set_link", "set_learning", "add_address", "delete_address",
             "add_route", "write_sysctl"):
    armed(kernel.LinuxKernel, name)
for name in ("install", "remove"):
    armed(firewall.Firewall, name)
# In the midst of starting a server: forked but not known, known but not begun, begun but not ready, ready, not noted.
armed(daemon, "_peer")
armed(daemon, "_await")
armed(dhcp.Folder, "write")
main.rehearse = lambda: None
sys.exit(main.main())
"""


class Bomb:
    """Arms a program for its next children."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.command = [sys.executable, "-c", ARMED, str(file)]
        self.there = Path(f"{file}.there")

    def arm(self, number: int, word: str = "kill") -> None:
        self._file.write_text(f"{number} {word}")

    def disarm(self) -> None:
        self._file.unlink()
