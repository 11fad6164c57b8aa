"""A root directory with a single program in it: the program, its libraries, and two devices, all read-only.

Made in a mount namespace of its own by the process that is about to become the program. What was visible before is
not hidden but gone: the old root is unmounted there.
"""

from __future__ import annotations

import os

from virt_netsetup.model import Value
from virt_netsetup.process import CLONE_NEWNS, kernel_call

LIBRARIES = ("/usr/lib", "/usr/lib64")
#: On most machines links into /usr.
OLD_LIBRARIES = ("/lib", "/lib64")
DEVICES = ("/dev/null", "/dev/urandom")

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
_SHUT = MS_NOSUID | MS_NODEV


class Room(Value, frozen=True):
    """`anchor` is a directory of ours that the new root is built on; nobody else sees what is mounted there."""

    program: str
    anchor: str

    def enter(self) -> None:
        # Somebody else than we shall find his way in it.
        os.umask(0o022)
        kernel_call("unshare", CLONE_NEWNS)
        _mount("none", "/", "", MS_REC | MS_PRIVATE)
        _mount("tmpfs", self.anchor, "tmpfs", _SHUT | MS_NOEXEC, "size=64k,nr_inodes=64,mode=755")
        for path in (*LIBRARIES, *OLD_LIBRARIES):
            self._directory(path)
        self._file(self.program, _SHUT)
        for path in DEVICES:
            self._file(path, MS_NOSUID | MS_NOEXEC)
        _mount("none", self.anchor, "", MS_REMOUNT | MS_BIND | MS_RDONLY | _SHUT | MS_NOEXEC)
        os.chdir(self.anchor)
        # The new root over the old one, which then lies on top and can be taken off.
        kernel_call("pivot_root", b".", b".")
        kernel_call("umount2", b".", MNT_DETACH)
        os.chdir("/")

    def _directory(self, path: str) -> None:
        if os.path.islink(path):
            os.symlink(os.readlink(path), self.anchor + path)
        elif os.path.isdir(path):
            os.makedirs(self.anchor + path, 0o755)
            _bind(path, self.anchor + path, _SHUT)

    def _file(self, path: str, flags: int) -> None:
        os.makedirs(os.path.dirname(self.anchor + path), 0o755, exist_ok=True)
        os.close(os.open(self.anchor + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        _bind(path, self.anchor + path, flags)


def _bind(source: str, target: str, flags: int) -> None:
    _mount(source, target, "", MS_BIND)
    _mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    kernel_call("mount", source.encode(), target.encode(), kind.encode(), flags, options.encode())
