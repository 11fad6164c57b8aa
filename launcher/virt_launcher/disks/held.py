"""Looks whether QEMU holds the very files that were checked.

QEMU opens a disk by its path, a moment after we looked at it. Whoever else can write to a claim could put a link there
in that moment, and the guest would read a file of its Pod. So the files that QEMU has open are compared with those that
we saw; a machine that holds another one is ended before its firmware has done anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from virt_core.runtime.record import record
from virt_launcher.errors import InvalidVMIError, LauncherError


@record(frozen=True, slots=True)
class Identity:
    """A file, by what cannot be exchanged: its file system and its number there; and the field that asks for it."""

    device: int
    inode: int
    field: str

    @classmethod
    def of(cls, fd: int, field: str) -> Identity:
        facts = os.fstat(fd)
        return cls(facts.st_dev, facts.st_ino, field)


def check_held(pid: int | None, wanted: Iterable[Identity]) -> None:
    """Raises InvalidVMIError for a file that the process does not hold, LauncherError when it cannot be looked at."""
    if pid is None:
        raise LauncherError("QEMU's process is not known, so its disks cannot be checked")
    held = _open_files(pid)
    for file in wanted:
        if (file.device, file.inode) not in held:
            raise InvalidVMIError(
                file.field, "the disk was replaced while the machine started, so the machine was ended"
            )


def _open_files(pid: int) -> set[tuple[int, int]]:
    directory = f"/proc/{pid}/fd"
    found: set[tuple[int, int]] = set()
    try:
        numbers = os.listdir(directory)
    except OSError as error:
        raise LauncherError(f"the files that QEMU has open cannot be read: {error.strerror}") from error
    for number in numbers:
        try:
            facts = os.stat(f"{directory}/{number}")
        except OSError:
            continue  # Closed meanwhile.
        found.add((facts.st_dev, facts.st_ino))
    return found
