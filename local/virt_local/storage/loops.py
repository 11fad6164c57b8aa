"""Block devices on files: the kernel's loop devices, by its own calls.

Users find a device by a node of ours, in a directory of ours, whose name says which volume it is: its number changes
from one attachment to the next. It is drawn by lot from a million, so that a number which somebody kept longer than he
should have shows him nobody else's volume. Who uses a device, and until when, is the caller's affair.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from virt_core.runtime.files import SafeDir
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

_CONTROL = "/dev/loop-control"
_SYS = Path("/sys/block")
_SET_CAPACITY, _CLR_FD, _GET_STATUS, _CONFIGURE = 0x4C07, 0x4C01, 0x4C05, 0x4C0A
_ADD, _REMOVE, _GET_FREE = 0x4C80, 0x4C81, 0x4C82
#: Numbers that we draw; lower ones are the machine's own.
_LOWEST, _HIGHEST = 1 << 10, 1 << 20
#: loop_info64: device, inode, rdevice, offset, limit; number, encryption, key size, flags; names and key; init.
_INFO = struct.Struct("=5Q4I64s64s32s2Q")
_CONFIG = struct.Struct(f"=2I{_INFO.size}s8Q")
_DIRECT_IO = 16
_TRIES = 16


class NoLoopDevices(RuntimeError):
    """This machine has none, or not for us; the text says why."""


def check() -> None:
    """Raises NoLoopDevices."""
    with _control() as control:
        _ask(control, _GET_FREE)


def attach(nodes: SafeDir, name: str, file: Path) -> None:
    """Afterwards the node `name` is the device of the file. Attached twice is attached once."""
    number = find(file)
    if number is None:
        number = _configure(file)
    _put_node(nodes, name, number)


def find(file: Path) -> int | None:
    """The device that shows this very file."""
    status = os.stat(file)
    for each in _SYS.glob("loop*/loop/backing_file"):
        try:
            if each.read_text().rstrip("\n") == str(file) and _backs(each.parents[1].name, status):
                return int(each.parents[1].name.removeprefix("loop"))
        except FileNotFoundError:
            continue  # Detached a moment ago.
    return None


def _backs(device: str, status: os.stat_result) -> bool:
    """By inode as well: a file of the same name may be another one by now."""
    number = int(device.removeprefix("loop"))
    with _opened(number) as fd:
        try:
            info = _INFO.unpack(fcntl.ioctl(fd, _GET_STATUS, bytes(_INFO.size)))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return False
            raise
    return bool(info[1] == status.st_ino)


def grow(file: Path) -> None:
    """Lets the device, if there is one, see the file's new size."""
    number = find(file)
    if number is not None:
        with _opened(number) as fd:
            fcntl.ioctl(fd, _SET_CAPACITY, 0)


def flush(file: Path) -> None:
    """What was written to the device and not yet to the file."""
    number = find(file)
    if number is not None:
        with _opened(number) as fd:
            os.fsync(fd)


def detach(file: Path) -> None:
    """Who still has it open keeps it until he closes it; the kernel gives its number to nobody else before."""
    number = find(file)
    if number is not None:
        with _opened(number) as fd:
            _clear(fd)
        _remove(number)


def forget_stale(nodes: SafeDir, files: Path) -> None:
    """Takes away nodes that no longer show their own file, as after a reboot: their numbers may be others' by now."""
    for name in nodes.listdir():
        file = files / f"{name}.img"
        number = find(file) if file.exists() else None
        if number is None or nodes.stat(name).st_rdev != _device(number):
            nodes.unlink(name)


def detach_below(directory: Path) -> list[str]:
    """Every device on a file in a directory, when nobody uses them any more."""
    done = []
    for each in _SYS.glob("loop*/loop/backing_file"):
        try:
            file = each.read_text().rstrip("\n").removesuffix(" (deleted)")
        except FileNotFoundError:
            continue
        if file.startswith(f"{directory}/"):
            number = int(each.parents[1].name.removeprefix("loop"))
            with _opened(number) as fd:
                _clear(fd)
            _remove(number)
            done.append(each.parents[1].name)
    return done


def _clear(fd: int) -> None:
    try:
        fcntl.ioctl(fd, _CLR_FD, 0)
    except OSError as error:
        if error.errno != errno.ENXIO:  # It has no file any more.
            raise


def _remove(number: int) -> None:
    """One that we drew. Who still has it open keeps an empty device, which costs nothing."""
    if number >= _LOWEST:
        with _control() as control:
            try:
                fcntl.ioctl(control, _REMOVE, number)
            except OSError as error:
                log.info("a loop device stays", number=number, error=str(error))


def _configure(file: Path) -> int:
    backing = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            number = _new_number()
            info = _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, _DIRECT_IO, os.fsencode(file.name)[:63], b"", b"", 0, 0)
            try:
                with _opened(number) as fd:
                    fcntl.ioctl(fd, _CONFIGURE, _CONFIG.pack(backing, 0, info, *[0] * 8))
            except OSError as error:
                if error.errno == errno.EBUSY:
                    continue  # Somebody else was faster.
                raise NoLoopDevices(f"the loop device {number} cannot be used: {error.strerror}") from error
            return number
    finally:
        os.close(backing)
    raise NoLoopDevices(f"no loop device could be had in {_TRIES} tries")


def _new_number() -> int:
    """A number by lot; where /dev does not get a node for it, one of those that the machine has."""
    with _control() as control:
        number = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
        try:
            fcntl.ioctl(control, _ADD, number)
        except OSError as error:
            log.info("a loop device cannot be added", number=number, error=str(error))
            return _ask(control, _GET_FREE)
        if os.path.exists(f"/dev/loop{number}"):
            return number
        fcntl.ioctl(control, _REMOVE, number)
        return _ask(control, _GET_FREE)


def _ask(control: int, what: int) -> int:
    try:
        return fcntl.ioctl(control, what)
    except OSError as error:
        raise NoLoopDevices(f"this machine gives out no loop device: {error.strerror}") from error


@contextmanager
def _control() -> Iterator[int]:
    try:
        control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise NoLoopDevices(f"this machine has no loop devices ({_CONTROL}: {error.strerror})") from error
    try:
        yield control
    finally:
        os.close(control)


@contextmanager
def _opened(number: int) -> Iterator[int]:
    place = f"/dev/loop{number}"
    try:
        fd = os.open(place, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise NoLoopDevices(f"{place} cannot be opened: {error.strerror}") from error
    try:
        if os.fstat(fd).st_rdev != _device(number):
            raise NoLoopDevices(f"{place} is not the device that it says")
        yield fd
    finally:
        os.close(fd)


def _device(number: int) -> int:
    """As the kernel numbers it: with partitions of loop devices switched on, a device has several minor numbers."""
    major, _, minor = (_SYS / f"loop{number}" / "dev").read_text().strip().partition(":")
    return os.makedev(int(major), int(minor))


def _put_node(nodes: SafeDir, name: str, number: int) -> None:
    device = _device(number)
    if nodes.exists(name) and nodes.stat(name).st_rdev == device:
        return
    temporary = f".{name}"
    nodes.unlink(temporary)
    os.mknod(temporary, stat.S_IFBLK | 0o600, device, dir_fd=nodes.fd)
    nodes.rename(temporary, name)
