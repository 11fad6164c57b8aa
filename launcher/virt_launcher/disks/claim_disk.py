"""Disks that outlive the machine: a file in a claim's directory or in one of the node's, or a block device.

The bytes in there are the user's and all there is of them. So a file that exists is never written by us, only made
longer when its claim has grown, and emptied when the whole of another disk is about to be copied onto it; one that does
not exist is made with O_EXCL; nothing is chowned. The directory is the user's as well: the file is opened beneath it
without following a link, must be a regular file, and is always raw to QEMU, whatever its first bytes claim. A qcow2
that somebody put there is refused, see foreign.py.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from pathlib import Path

from virt_core.runtime.files import open_beneath
from virt_core.runtime.logs import get_logger
from virt_core.runtime.record import record
from virt_launcher.disks.foreign import is_foreign, mark
from virt_launcher.disks.held import Identity
from virt_launcher.disks.sources import DiskSource
from virt_launcher.errors import InvalidVMIError, LauncherError

log = get_logger(__name__)

_MIB = 1 << 20
#: type, whence, start, length, process
_FLOCK = struct.Struct("@hhqqi4x")
#: An attribute of a file onto which a disk is being copied.
_INCOMING = "user.virtpod.incoming"
#: Kept free on a claim's filesystem, for its own tables.
RESERVE_BYTES = 131072
#: A filesystem that is smaller than its claim by no more than this is good enough.
TOLERANCE_PERCENT = 10


@record(frozen=True, slots=True)
class DiskFile:
    """A disk in a directory, and the field of the VMI that asks for it."""

    directory: Path
    name: str
    field: str
    #: Bytes that it should have; 0: as many as it has.
    size: int = 0
    read_only: bool = False
    preallocated: bool = False
    #: Another disk is being copied onto it.
    incoming: bool = False

    @property
    def path(self) -> Path:
        return self.directory / self.name

    def open(self, flags: int) -> int:
        return open_beneath(self.directory, self.name, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o660)

    def refuse(self, message: str) -> InvalidVMIError:
        return InvalidVMIError(self.field, message)

    def why_not(self, error: OSError) -> InvalidVMIError:
        if error.errno in (errno.ELOOP, errno.EXDEV):
            return self.refuse(f"{self.name} is a symbolic link, which is not followed")
        if error.errno in (errno.EACCES, errno.EPERM):
            return self.refuse(f"{self.name} cannot be opened by user {os.getuid()}: give it to that user or group")
        if error.errno == errno.EROFS:
            return self.refuse(f"{self.name} cannot be written: the volume is read-only")
        return self.refuse(f"{self.name} cannot be opened: {error.strerror}")


def use_file(disk: DiskFile, *, create: bool) -> DiskSource:
    """Raises InvalidVMIError. `create`: a missing file is made, sparse."""
    access = os.O_RDONLY if disk.read_only else os.O_RDWR
    try:
        fd = disk.open(access)
    except FileNotFoundError as error:
        if not create or disk.read_only:
            raise disk.refuse(f"there is no file {disk.name}, so there is no disk") from error
        fd = _make(disk)
    except OSError as error:
        raise disk.why_not(error) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise disk.refuse(f"{disk.name} is not a regular file")
        if not disk.incoming and _has_mark(fd):
            raise disk.refuse(
                f"{disk.name} is the beginning of a copy that was given up: name the claim that it was copied from, or "
                "delete the file"
            )
        if is_foreign(fd, disk.size // _MIB * _MIB):
            raise disk.refuse(
                f"{disk.name} is a qcow2 image, and the disk in a volume is raw: put it there with "
                f"`qemu-img convert -O raw my.qcow2 {disk.name}`"
            )
        if create and not disk.read_only:
            _grow(disk, fd)
            mark(fd)
        if os.fstat(fd).st_size == 0:
            raise disk.refuse(f"{disk.name} is empty")
        identity = Identity.of(fd, disk.field)
    finally:
        os.close(fd)
    return DiskSource(
        str(disk.path),
        "raw",
        direct_io=_opens_directly(disk),
        read_only=disk.read_only,
        preallocated=disk.preallocated,
        identity=identity,
    )


def _make(disk: DiskFile) -> int:
    size = _affordable(disk)
    try:
        fd = disk.open(os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except OSError as error:
        raise disk.why_not(error) from error
    try:
        os.ftruncate(fd, size)
        os.fsync(fd)
    except OSError as error:
        os.close(fd)
        raise disk.refuse(f"{disk.name} could not be made with {size} bytes: {error.strerror}") from error
    log.info("made a disk", path=str(disk.path), bytes=size)
    return fd


def empty_file(disk: DiskFile, size: int) -> None:
    """A file of this size without any byte that it had: all of a disk is about to be copied onto it. Raises
    InvalidVMIError, also for a file that some machine holds."""
    try:
        fd = disk.open(os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise disk.why_not(error) from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise disk.refuse(f"{disk.name} is not a regular file")
        if _is_held(fd):
            raise disk.refuse(f"{disk.name} is in use by another machine")
        room = found.st_blocks * 512 + _free_bytes(disk) - RESERVE_BYTES
        if room < size:
            raise disk.refuse(f"the volume has only {max(room, 0)} of the {size} bytes that are to be copied there")
        os.ftruncate(fd, 0)
        _set_mark(fd)
        os.ftruncate(fd, size)
        os.fsync(fd)
    except OSError as error:
        raise disk.refuse(f"{disk.name} could not be made with {size} bytes: {error.strerror}") from error
    finally:
        os.close(fd)
    log.info("made room for a disk that comes", path=str(disk.path), bytes=size, bytes_before=found.st_size)


def copy_is_whole(disk: DiskFile) -> None:
    """All of the other disk is there: from now on the file is a machine's own."""
    fd = disk.open(os.O_RDWR)
    try:
        if _has_mark(fd):
            os.removexattr(fd, _INCOMING)
    finally:
        os.close(fd)


def _set_mark(fd: int) -> None:
    try:
        os.setxattr(fd, _INCOMING, b"1")
    except OSError as error:
        log.info("a copy cannot be marked as unfinished", error=str(error))  # Not every file system can keep that.


def _has_mark(fd: int) -> bool:
    try:
        return bool(os.getxattr(fd, _INCOMING))
    except OSError:
        return False


def _is_held(fd: int) -> bool:
    """QEMU locks bytes of each file that it uses."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    found = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
    return bool(found[0] != fcntl.F_UNLCK)


def _affordable(disk: DiskFile) -> int:
    """Whole MiB; somewhat less than asked for where the filesystem itself takes its part."""
    wanted = disk.size // _MIB * _MIB
    if wanted <= 0:
        raise disk.refuse(f"there is no file {disk.name}, and nothing says how large it should be")
    free = _free_bytes(disk) - RESERVE_BYTES
    if free >= wanted:
        return wanted
    if free * 100 < wanted * (100 - TOLERANCE_PERCENT):
        raise disk.refuse(f"the volume has only {max(free, 0)} of the {wanted} bytes that are asked for")
    log.warning("the volume is smaller than its claim", path=str(disk.path), wanted=wanted, bytes=free)
    return free // _MIB * _MIB


def _grow(disk: DiskFile, fd: int) -> None:
    """To what the claim has now; never smaller. What the guest makes of the new space is its own affair."""
    has, wanted = os.fstat(fd).st_size, _room(disk, fd)
    if wanted > has:
        try:
            os.ftruncate(fd, wanted)
        except OSError as error:
            raise disk.refuse(f"{disk.name} could not be made larger: {error.strerror}") from error
        log.info("a disk has grown with its claim", path=str(disk.path), bytes_before=has, bytes=wanted)


def _room(disk: DiskFile, fd: int) -> int:
    """What the claim lets it have. A sparse file does not have all of its size yet."""
    usable = os.fstat(fd).st_blocks * 512 + max(_free_bytes(disk) - RESERVE_BYTES, 0)
    return min(disk.size, usable) // _MIB * _MIB


def room_of_file(disk: DiskFile) -> int:
    """How large the disk of a running machine may be by now. Raises InvalidVMIError."""
    try:
        fd = disk.open(os.O_RDONLY)
    except OSError as error:
        raise disk.why_not(error) from error
    try:
        return _room(disk, fd)
    finally:
        os.close(fd)


def _free_bytes(disk: DiskFile) -> int:
    free = os.statvfs(disk.directory)
    return free.f_bavail * free.f_frsize


def _opens_directly(disk: DiskFile) -> bool:
    try:
        os.close(disk.open(os.O_RDONLY | os.O_DIRECT))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        raise disk.why_not(error) from error
    return True


def use_device(path: Path, field: str, *, read_only: bool) -> tuple[DiskSource, int]:
    """The device as a disk, and its size in bytes. The container runtime made it; no user can put a link there."""
    try:
        fd = os.open(path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise InvalidVMIError(field, _device_trouble(path, error)) from error
    try:
        if not stat.S_ISBLK(os.fstat(fd).st_mode):
            raise LauncherError(f"{field}: {path} is not a block device")
        size = os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)
    return DiskSource(str(path), "raw", block=True, read_only=read_only), size


def _device_trouble(path: Path, error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"{path} cannot be opened by user {os.getuid()}: the node's container runtime must give block devices to "
            "the Pod's user (containerd: device_ownership_from_security_context)"
        )
    return f"{path} cannot be opened: {error.strerror}"
