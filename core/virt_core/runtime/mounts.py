"""Mounts by descriptor, also in the mount namespace of another process: no path of that process is ever trusted.

What is at a descriptor is cloned as a mount that hangs nowhere yet, may be given other owners, and is then put onto
another descriptor. The kernel clones and mounts only in the namespace that the caller is in, so that both are done by a
thread which enters it and ends there.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

MNT_DETACH = 0x2
UMOUNT_NOFOLLOW = 0x8
CLONE_FS = 0x200
CLONE_NEWNS = 0x20000
CLONE_NEWCGROUP = 0x2000000

_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442  # The same on every architecture.
_AT_EMPTY_PATH = 0x1000
_OPEN_TREE_CLONE = 1
_MOVE_BOTH_BY_DESCRIPTOR = 0x4 | 0x40
_ATTR_IDMAP = 0x100000
_DEADLINE_S = 20.0

_libc = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def clone(fd: int) -> int:
    """A descriptor of a new mount of what is at `fd`, without what is mounted below it. It goes when it is closed."""
    flags = ctypes.c_uint(_OPEN_TREE_CLONE | _AT_EMPTY_PATH | os.O_CLOEXEC)
    return _call(_SYS_OPEN_TREE, fd, b"", flags, what="clone a mount")


def translate(tree: int, userns: int) -> None:
    """Lets a cloned mount show the owners that they have in a user namespace. Some file systems refuse."""
    wish = _Attributes(set=_ATTR_IDMAP, userns=userns)
    _call(
        *(_SYS_MOUNT_SETATTR, tree, b"", ctypes.c_uint(_AT_EMPTY_PATH), ctypes.byref(wish)),
        ctypes.c_size_t(ctypes.sizeof(wish)),
        what="translate owners: the file system cannot be shown to users of a Pod's own",
    )


def put(tree: int, onto: int) -> None:
    """Mounts a clone onto what is at the other descriptor."""
    flags = ctypes.c_uint(_MOVE_BOTH_BY_DESCRIPTOR)
    _call(_SYS_MOVE_MOUNT, tree, b"", onto, b"", flags, what="mount")


def take_away(directory: int, name: str) -> None:
    """Unmounts an entry of a directory, at once, whoever uses it. Only inside `in_namespace`: it changes directory."""
    os.fchdir(directory)
    if _libc.umount2(os.fsencode(name), MNT_DETACH | UMOUNT_NOFOLLOW) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)} (unmount)", name)


def in_namespace(namespace: int, body: Callable[[], T], kind: int = CLONE_NEWNS) -> T:
    """Runs `body` in a mount namespace (or one of another kind), in a thread of its own that ends after it. In there
    nothing may be imported."""
    box: list[T] = []
    failure: list[BaseException] = []

    def entered() -> None:
        try:
            _checked(_libc.unshare(CLONE_FS), "leave the common root")
            _checked(_libc.setns(namespace, kind), "enter a namespace")
            box.append(body())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=entered, name="mounts", daemon=True)
    thread.start()
    thread.join(_DEADLINE_S)
    if failure:
        raise failure[0]
    if not box:
        raise TimeoutError(f"a mount took longer than {_DEADLINE_S:.0f} s")
    return box[0]


def _call(*arguments: object, what: str) -> int:
    return _checked(_libc.syscall(*arguments), what)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)} ({what})")
    return result
