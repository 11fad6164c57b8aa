"""What the converter needs to know of a prepared volume."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from virt_core.runtime.record import record
from virt_launcher.disks.held import Identity
from virt_launcher.disks.qcow2 import Backing
from virt_launcher.errors import InvalidVMIError

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


@record(frozen=True, slots=True)
class BlockSizes:
    """Of sectors, of what is written at once, and of what can be given back; the last may be 0: nothing."""

    logical: int
    physical: int
    discard: int = 0


@record(frozen=True, slots=True)
class DiskSource:
    """A file or block device that QEMU will open."""

    path: str
    format: str
    backing: Backing | None = None
    #: The file, and what it stands on, can be opened with O_DIRECT.
    direct_io: bool = True
    block: bool = False
    #: Whatever the disk says.
    read_only: bool = False
    #: Its space is taken beforehand and should stay so.
    preallocated: bool = False
    #: The file that was checked, where somebody else could exchange it.
    identity: Identity | None = None
    #: The layer over that file in which changed blocks are tracked.
    layer: Identity | None = None
    #: What it is made of, where the disk is to be like it.
    blocks: BlockSizes | None = None


@record(frozen=True, slots=True)
class KernelFiles:
    kernel: str = ""
    initrd: str = ""


@record(frozen=True, slots=True)
class FirmwareFiles:
    """ACPI tables and the data of Ignition, by their paths."""

    slic: str = ""
    msdm: str = ""
    ignition: str = ""


def check_volume_name(name: str, field: str) -> None:
    """Names become parts of paths. Raises InvalidVMIError."""
    if not _NAME.fullmatch(name):
        raise InvalidVMIError(field, f"{name!r} is not a valid volume name")


def supports_direct_io(*paths: str | Path) -> bool:
    return all(_opens_directly(path) for path in paths)


def directory_supports_direct_io(directory: Path) -> bool:
    """For a file that is yet to be made there."""
    probe = directory / ".direct-io"
    probe.touch()
    try:
        return _opens_directly(probe)
    finally:
        probe.unlink()


def _opens_directly(path: str | Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise
    os.close(fd)
    return True
