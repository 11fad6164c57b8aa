"""Processes without races: a pid together with its start time is one process for ever, a pidfd even more so."""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass


class ProcessGone(Exception):
    """The process has ended, or its pid belongs to another one now."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid that can be written to a file and still be believed after a restart."""

    pid: int
    start_time: int

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        return cls(pid, start_time(pid))

    def alive(self) -> bool:
        try:
            return start_time(self.pid) == self.start_time
        except ProcessGone:
            return False

    def open(self) -> int:
        """A pidfd of exactly this process. The caller closes it."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError as error:
            raise ProcessGone(f"process {self.pid} has ended") from error
        if not self.alive():
            os.close(fd)
            raise ProcessGone(f"pid {self.pid} belongs to another process now")
        return fd

    def signal(self, number: int = signal.SIGTERM) -> None:
        fd = self.open()
        try:
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError as error:
            raise ProcessGone(f"process {self.pid} has ended") from error
        finally:
            os.close(fd)

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end, also of a process that is not our child. True: it has ended."""
        try:
            fd = self.open()
        except ProcessGone:
            return True
        try:
            return wait_pidfd(fd, timeout_s)
        finally:
            os.close(fd)


def wait_pidfd(fd: int, timeout_s: float) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def start_time(pid: int) -> int:
    """In clock ticks since the boot. A zombie has ended for us."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessGone(f"process {pid} has ended") from error
    # The command stands in parentheses and may itself contain spaces and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        raise ProcessGone(f"process {pid} has ended")
    return int(fields[19])


def children(pid: int) -> list[int]:
    """The direct children, of all threads."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.extend(int(child) for child in file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        return found
    return found


def cgroup_paths(pid: int) -> list[str]:
    """The cgroups of a process, one for each v1 hierarchy and one for v2."""
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            lines = file.read().splitlines()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessGone(f"process {pid} has ended") from error
    return [line.split(":", 2)[2] for line in lines]
