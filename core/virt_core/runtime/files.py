"""The one door to paths that a Pod, a volume or a user can influence.

Every open goes through openat2 and stays beneath a directory that we hold open: no `..` to the outside, no symbolic
link, no magic link, at any step of the path. What is opened is then used by its descriptor, never again by its name.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from contextlib import suppress

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

_SAFE = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
_SYS_OPENAT2 = 437  # The same on every architecture.
#: The kernel may ask to try again while somebody renames directories under us; an attacker can make that last.
_EAGAIN_TRIES = 32

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


class TooLarge(OSError):
    """The file is larger than the caller is willing to read."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(errno.EFBIG, f"larger than {limit} bytes", path)


def private_directory(path: str) -> None:
    """Makes a directory that only we may enter, and what is missing above it, whatever the umask says. Raises
    PermissionError when it is a link or somebody else's, or when everybody could put another in its place."""
    _demand_closed_parents(path)
    before = os.umask(0o077)
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    finally:
        os.umask(before)
    with SafeDir.open_own(path) as directory:
        os.fchmod(directory.fd, 0o700)


def _demand_closed_parents(path: str) -> None:
    """Both ways: by the names as they are written, links included, and by where they lead."""
    for place in {os.path.abspath(path), os.path.realpath(path)}:
        while place != (place := os.path.dirname(place)):
            with suppress(FileNotFoundError):
                _demand_closed(place, os.lstat(place))


def _demand_closed(place: str, found: os.stat_result) -> None:
    open_to_all = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    if open_to_all and not stat.S_ISLNK(found.st_mode):
        raise PermissionError(errno.EPERM, "everybody may write into the directory", place)


def open_beneath(root: int | str | os.PathLike[str], relpath: str, flags: int = os.O_RDONLY, mode: int = 0) -> int:
    """Opens a path below a directory (a descriptor, or a path that we trust). ELOOP and EXDEV mean an attempt."""
    if isinstance(root, int):
        return _openat2(root, relpath, flags, mode)
    dirfd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _openat2(dirfd, relpath, flags, mode)
    finally:
        os.close(dirfd)


def _openat2(dirfd: int, relpath: str, flags: int, mode: int) -> int:
    if "\0" in relpath:
        raise ValueError("a path with a zero byte")
    # The kernel refuses a mode where nothing is made. O_TMPFILE contains the bit of O_DIRECTORY.
    makes = bool(flags & os.O_CREAT) or flags & os.O_TMPFILE == os.O_TMPFILE
    how = _OpenHow(flags | os.O_CLOEXEC, mode if makes else 0, _SAFE)
    path = os.fsencode(relpath)
    for _ in range(_EAGAIN_TRIES):
        fd: int = _libc.syscall(_SYS_OPENAT2, dirfd, path, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), relpath)


def read_fd(fd: int, limit: int, name: str = "") -> bytes:
    """The rest of a file, at most `limit` bytes; TooLarge beyond."""
    chunks: list[bytes] = []
    left = limit + 1
    while left > 0 and (chunk := os.read(fd, min(left, 1 << 16))):
        chunks.append(chunk)
        left -= len(chunk)
    if left <= 0:
        raise TooLarge(name, limit)
    return b"".join(chunks)


def read_beneath(root: int | str | os.PathLike[str], relpath: str, limit: int = 1 << 20) -> bytes:
    """A small regular file. A FIFO or a device is refused instead of blocking us."""
    fd = open_beneath(root, relpath, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", relpath)
        return read_fd(fd, limit, relpath)
    finally:
        os.close(fd)


def connectable_socket(root: int | str | os.PathLike[str], relpath: str) -> int:
    """An O_PATH descriptor of a unix socket, to be connected to through `socket_path(fd)`. The caller closes it."""
    fd = open_beneath(root, relpath, os.O_PATH)
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ENOTSOCK, "not a socket", relpath)
    return fd


def socket_path(fd: int) -> str:
    """A path for connect(): short enough for any depth, and bound to the inode, not to the name."""
    return f"/proc/self/fd/{fd}"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class SafeDir:
    """A directory held open, and everything beneath it."""

    def __init__(self, fd: int, name: str = "") -> None:
        self.fd = fd
        self.name = name

    @classmethod
    def open_trusted(cls, path: str | os.PathLike[str]) -> SafeDir:
        """A directory whose path nobody but us and the administrator can change."""
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), os.fspath(path))

    @classmethod
    def open_own(cls, path: str | os.PathLike[str]) -> SafeDir:
        """A directory that is ours and no link. Raises PermissionError."""
        opened = cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC), os.fspath(path))
        if os.fstat(opened.fd).st_uid != os.geteuid():
            opened.close()
            raise PermissionError(errno.EPERM, "the directory belongs to another user", os.fspath(path))
        return opened

    def __enter__(self) -> SafeDir:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def fileno(self) -> int:
        return self.fd

    def open(self, relpath: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
        return open_beneath(self.fd, relpath, flags, mode)

    def subdir(self, relpath: str) -> SafeDir:
        fd = self.open(relpath, os.O_RDONLY | os.O_DIRECTORY)
        return SafeDir(fd, os.path.join(self.name, relpath))

    def mkdir(self, relpath: str, mode: int = 0o755, *, exist_ok: bool = True) -> SafeDir:
        """Makes one directory (its parents must exist) and opens it."""
        parent, leaf = self._parent(relpath)
        try:
            os.mkdir(leaf, mode, dir_fd=parent)
        except FileExistsError:
            if not exist_ok:
                raise
        finally:
            os.close(parent)
        return self.subdir(relpath)

    def listdir(self, relpath: str = ".") -> list[str]:
        fd = self.open(relpath, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def read(self, relpath: str, limit: int = 1 << 20) -> bytes:
        return read_beneath(self.fd, relpath, limit)

    def stat(self, relpath: str) -> os.stat_result:
        fd = self.open(relpath, os.O_PATH)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def exists(self, relpath: str) -> bool:
        try:
            self.stat(relpath)
        except FileNotFoundError:
            return False
        return True

    def unlink(self, relpath: str, *, missing_ok: bool = True) -> None:
        parent, leaf = self._parent(relpath)
        try:
            os.unlink(leaf, dir_fd=parent)
        except FileNotFoundError:
            if not missing_ok:
                raise
        finally:
            os.close(parent)

    def rename(self, source: str, target: str) -> None:
        source_fd, source_leaf = self._parent(source)
        try:
            target_fd, target_leaf = self._parent(target)
            try:
                os.rename(source_leaf, target_leaf, src_dir_fd=source_fd, dst_dir_fd=target_fd)
            finally:
                os.close(target_fd)
        finally:
            os.close(source_fd)

    def write_atomic(self, relpath: str, data: bytes, mode: int = 0o600, *, sync: bool = True) -> None:
        """Readers see the old or the new content, never a part; with `sync` also after a power cut."""
        parent, leaf = self._parent(relpath)
        try:
            temporary = f".{leaf[:200]}.{os.urandom(6).hex()}"
            fd = open_beneath(parent, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            try:
                _fill(fd, data, sync)
                os.rename(temporary, leaf, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise
            if sync:
                _sync_dir(parent)
        finally:
            os.close(parent)

    def connectable_socket(self, relpath: str) -> int:
        return connectable_socket(self.fd, relpath)

    def _parent(self, relpath: str) -> tuple[int, str]:
        """The directory that holds the last part, opened safely, and that part. unlink and rename need no more."""
        head, _, leaf = relpath.rstrip("/").rpartition("/")
        if leaf in ("", ".", ".."):
            raise ValueError(f"{relpath!r} names no entry of a directory")
        return self.open(head or ".", os.O_PATH | os.O_DIRECTORY), leaf


def _fill(fd: int, data: bytes, sync: bool) -> None:
    try:
        _write_all(fd, data)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def _sync_dir(parent: int) -> None:
    """The directory is open as O_PATH, which cannot be synced."""
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
