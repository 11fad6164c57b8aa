"""The few system calls that Python lacks, in one place: mounts, namespaces, and paths inside a foreign root."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MNT_DETACH = 0x2
CLONE_NEWNET = 0x40000000

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_IN_ROOT = 0x10

_SYS_OPENAT2 = 437
_NETNS_DEADLINE_S = 20.0

_libc = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)} ({what})")
    return result


def mount(source: str, target: str, fstype: str = "", flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), fstype.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _check(result, f"mount {fstype or 'bind'} {source} at {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    mount(source, target, flags=MS_BIND)
    if read_only:
        mount(source, target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def unmount(target: Path) -> None:
    """Takes away every mount on the path; none is fine. Detached, so that a process inside does not block us."""
    while _libc.umount2(os.fsencode(target), MNT_DETACH) == 0:
        pass
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOENT):
        raise OSError(number, f"unmount {target}: {os.strerror(number)}")


def mounts_below(directory: Path) -> list[Path]:
    """All mount points at or below a directory, the deepest first."""
    prefix = f"{directory}/"
    found = [Path(point) for point in mount_points() if point == str(directory) or point.startswith(prefix)]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def mount_points() -> list[str]:
    text = Path("/proc/self/mountinfo").read_text()
    return [_unescape(line.split(" ", 5)[4]) for line in text.splitlines()]


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def unmount_below(directory: Path) -> None:
    for point in mounts_below(directory):
        unmount(point)


def open_in_root(root_fd: int, path: str, flags: int) -> int:
    """Opens a path as a process whose root is `root_fd` would: symbolic links are followed but cannot lead out."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
    name = os.fsencode(path.lstrip("/") or ".")
    result = _libc.syscall(_SYS_OPENAT2, root_fd, name, ctypes.byref(how), ctypes.sizeof(how))
    return _check(result, f"open {path}")


def run_in_thread(body: Callable[[], T]) -> T:
    """Runs `body` in a thread of its own, which ends after it: a thread that changed its namespace is never reused."""
    box: list[T] = []
    failure: list[BaseException] = []

    def guarded() -> None:
        try:
            box.append(body())
        except BaseException as err:
            failure.append(err)

    thread = threading.Thread(target=guarded, name="namespace", daemon=True)
    thread.start()
    thread.join(_NETNS_DEADLINE_S)
    if failure:
        raise failure[0]
    if not box:
        raise TimeoutError(f"work in a namespace took longer than {_NETNS_DEADLINE_S:.0f} s")
    return box[0]


def create_netns(path: Path, prepare: Callable[[], object]) -> None:
    """Makes a network namespace, runs `prepare` in it and keeps it by a bind mount at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)

    def body() -> bool:
        _check(_libc.unshare(CLONE_NEWNET), "unshare the network namespace")
        prepare()
        mount("/proc/thread-self/ns/net", str(path), flags=MS_BIND)
        return True

    run_in_thread(body)


def in_netns(path: Path, body: Callable[[], T]) -> T:
    def entered() -> T:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(fd, CLONE_NEWNET), f"enter {path}")
        finally:
            os.close(fd)
        return body()

    return run_in_thread(entered)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
