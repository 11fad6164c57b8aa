"""A volume's whole content into an empty directory of ours, which nobody else can reach yet.

Links are copied as links. Owners, modes, times, hard links, holes and the users' extended attributes stay; sockets are
left out, for nobody listens behind a copy of one. A device node is refused: whoever made it had rights that we will not
lend to a copy.
"""

from __future__ import annotations

import os
import stat

from virt_core.runtime.files import open_beneath
from virt_local.storage.filecopy import copy_file
from virt_local.storage.walk import ContentError, Entry, walk

_ATTRIBUTES = ("user.", "system.posix_acl_")


class TreeCopy:
    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        #: Files that the kernel copied at one instant.
        self.at_once: set[str] = set()
        self._linked: dict[int, str] = {}
        self._directories: list[tuple[str, os.stat_result]] = []

    def run(self) -> None:
        for entry in walk(self._source):
            self._one(entry)
        for path, status in reversed(self._directories):
            self._finish_directory(path, status)
        self._finish_root()

    def _one(self, entry: Entry) -> None:
        parent, _, _ = entry.path.rpartition("/")
        into = open_beneath(self._target, parent or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._make(entry, into)
        finally:
            os.close(into)

    def _make(self, entry: Entry, into: int) -> None:
        mode = entry.status.st_mode
        if entry.is_directory:
            os.mkdir(entry.name, 0o700, dir_fd=into)
            self._directories.append((entry.path, entry.status))
        elif entry.is_file:
            self._file(entry, into)
        elif stat.S_ISLNK(mode):
            os.symlink(os.readlink("", dir_fd=entry.fd), entry.name, dir_fd=into)
            os.chown(entry.name, entry.status.st_uid, entry.status.st_gid, dir_fd=into, follow_symlinks=False)
        elif stat.S_ISFIFO(mode):
            os.mkfifo(entry.name, 0o600, dir_fd=into)
            os.chown(entry.name, entry.status.st_uid, entry.status.st_gid, dir_fd=into, follow_symlinks=False)
            os.chmod(entry.name, stat.S_IMODE(mode), dir_fd=into)
        elif not stat.S_ISSOCK(mode):
            raise ContentError(f"{entry.path!r} is a device node, which is not copied")

    def _file(self, entry: Entry, into: int) -> None:
        known = self._linked.get(entry.status.st_ino) if entry.status.st_nlink > 1 else None
        if known is not None:
            os.link(known, entry.name, src_dir_fd=self._target, dst_dir_fd=into, follow_symlinks=False)
            return
        target = open_beneath(into, entry.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with entry.reading() as source:
                if copy_file(source, target):
                    self.at_once.add(entry.path)
                _dress(source, target, entry.status)
            os.fsync(target)
        finally:
            os.close(target)
        if entry.status.st_nlink > 1:
            self._linked[entry.status.st_ino] = entry.path

    def _finish_directory(self, path: str, status: os.stat_result) -> None:
        target = open_beneath(self._target, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            source = open_beneath(self._source, path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                _dress(source, target, status)
            finally:
                os.close(source)
            os.fsync(target)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ContentError(f"{path!r} changed while it was copied") from error
        finally:
            os.close(target)

    def _finish_root(self) -> None:
        _dress(self._source, self._target, os.fstat(self._source))
        os.fsync(self._target)


def _dress(source: int, target: int, status: os.stat_result) -> None:
    """Owner before mode, for the kernel takes special bits away from a file that changes hands."""
    for name in os.listxattr(source):
        if name.startswith(_ATTRIBUTES):
            os.setxattr(target, name, os.getxattr(source, name))
    os.fchown(target, status.st_uid, status.st_gid)
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
