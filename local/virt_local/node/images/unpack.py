"""Unpacks the layers of an image into one directory.

Layers come from strangers. Every path is resolved as if the target directory were the root of the file system
(openat2), so no name and no link leads out; device nodes are left out; sizes and counts are bounded; digests checked
on the way.
"""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from virt_local.node.images.decompress import HashingReader, open_layer
from virt_local.node.images.layout import Image, ImageError, blob_path
from virt_local.node.kernel import open_in_root

MAX_ENTRIES = 1_000_000
MAX_BYTES = 256 << 30
#: What stands before a file: a long name, attributes. It is read as a whole, so a layer of a few bytes must not claim
#: gigabytes for it.
MAX_HEAD = 16 << 10
_HEADS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
#: What broken layers make the libraries raise.
_BROKEN = (OSError, tarfile.TarError, zlib.error, EOFError, RecursionError, ValueError, OverflowError)
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_XATTR = "SCHILY.xattr."
_KEPT_XATTRS = ("security.capability",)


def unpack(store: Path, image: Image, target: Path) -> None:
    """Fills an empty directory. The caller throws it away when this raises ImageError."""
    root_fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for layer, diff_id in zip(image.manifest.layers, image.config.rootfs.diff_ids, strict=True):
            with open_layer(blob_path(store, layer.digest), layer) as (compressed, plain):
                Layer(root_fd, plain).apply()
                compressed.drain()
                _expect(compressed.hexdigest(), layer.digest, "layer")
                _expect(plain.hexdigest(), diff_id, "unpacked layer")
    except _BROKEN as err:
        raise ImageError(f"{image.reference}: cannot unpack: {err}") from err
    finally:
        os.close(root_fd)


def _expect(found: str, digest: str, what: str) -> None:
    if f"sha256:{found}" != digest:
        raise ImageError(f"the {what} {digest} does not have the content that its digest says")


class Head(tarfile.TarInfo):
    """The head of an entry, looked at before what it announces is read."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> Head:
        head = super().frombuf(buf, encoding, errors)
        _check_size(head)
        if head.type in _HEADS and head.size > MAX_HEAD:
            raise ImageError(f"an entry has a name or attributes of {head.size} bytes; at most {MAX_HEAD} are read")
        if head.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse(head)
        return head


def _check_size(head: tarfile.TarInfo) -> None:
    """Before it is skipped: the library reads a layer that has ended for as long as the size of an entry says."""
    if not 0 <= head.size <= MAX_BYTES:
        raise ImageError(f"the entry {head.name!r} claims {head.size} bytes; at most {MAX_BYTES >> 30} GiB are read")


def _sparse(head: tarfile.TarInfo) -> ImageError:
    """A few bytes of it can stand for any size, and the format of images advises against it."""
    return ImageError(f"the entry {head.name!r} is a sparse file, which layers must not have")


class Layer:
    """One layer on its way into the directory."""

    def __init__(self, root_fd: int, stream: HashingReader) -> None:
        self._root_fd = root_fd
        self._stream = stream
        self._added: set[PurePosixPath] = set()
        self._bytes = 0

    def apply(self) -> None:
        with tarfile.open(fileobj=self._stream, mode="r|", bufsize=_CHUNK, tarinfo=Head) as archive:
            for number, member in enumerate(archive):
                if number >= MAX_ENTRIES:
                    raise ImageError(f"a layer has more than {MAX_ENTRIES} entries")
                self._entry(archive, member)
        self._stream.drain()

    def _entry(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        _check_size(member)  # A second time: attributes may say another size than the head.
        path = clean(member.name)
        if path is None:
            return
        if member.sparse is not None:
            raise _sparse(member)
        with self._parent(path) as parent:
            if path.name == _OPAQUE:
                self._clear(parent, path.parent)
            elif path.name.startswith(_WHITEOUT):
                _remove(parent, path.name.removeprefix(_WHITEOUT))
            else:
                self._make(archive, member, parent, path)
                self._added.add(path)

    def _make(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parent: int, path: PurePosixPath) -> None:
        name = path.name
        if member.isdir():
            _directory(parent, name, member)
            return
        if member.ischr() or member.isblk():
            return
        _remove(parent, name)
        if member.isreg():
            content = archive.extractfile(member)
            assert content is not None
            self._file(parent, name, member, content)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
            os.chown(name, member.uid, member.gid, dir_fd=parent, follow_symlinks=False)
        elif member.islnk():
            self._hard_link(parent, name, member)
        elif member.isfifo():
            os.mkfifo(name, 0o600, dir_fd=parent)
            os.chmod(name, member.mode & 0o777, dir_fd=parent)

    def _file(self, parent: int, name: str, member: tarfile.TarInfo, content: IO[bytes]) -> None:
        self._bytes += member.size
        if self._bytes > MAX_BYTES:
            raise ImageError(f"a layer is larger than {MAX_BYTES >> 30} GiB")
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
        try:
            _copy_sparse(content, fd)
            os.fchown(fd, member.uid, member.gid)
            os.fchmod(fd, member.mode & 0o7777)
            for key, value in member.pax_headers.items():
                if key.removeprefix(_XATTR) in _KEPT_XATTRS and key.startswith(_XATTR):
                    os.setxattr(fd, key.removeprefix(_XATTR), value.encode("utf-8", "surrogateescape"))
            os.utime(fd, (member.mtime, member.mtime))
        finally:
            os.close(fd)

    def _hard_link(self, parent: int, name: str, member: tarfile.TarInfo) -> None:
        source = clean(member.linkname)
        if source is None:
            raise ImageError(f"{member.name} is a hard link to nothing")
        with self._parent(source) as source_parent:
            os.link(source.name, name, src_dir_fd=source_parent, dst_dir_fd=parent, follow_symlinks=False)

    def _clear(self, parent: int, directory: PurePosixPath) -> None:
        """An opaque directory hides what lower layers put there, not what this layer adds."""
        for name in os.listdir(parent):
            if directory / name not in self._added:
                _remove(parent, name)

    @contextmanager
    def _parent(self, path: PurePosixPath) -> Iterator[int]:
        fd = _open_directory(self._root_fd, path.parent)
        try:
            yield fd
        finally:
            os.close(fd)


def clean(name: str) -> PurePosixPath | None:
    """An entry's path below the root; None for the root itself. Refuses what tries to climb."""
    path = PurePosixPath(name.lstrip("/"))
    if ".." in path.parts:
        raise ImageError(f"the entry {name!r} leads out of the image")
    return path if path.parts else None


def _open_directory(root_fd: int, path: PurePosixPath) -> int:
    """Opens a directory of the image, making what is missing; links on the way stay inside."""
    flags = os.O_RDONLY | os.O_DIRECTORY
    try:
        return open_in_root(root_fd, str(path), flags)
    except FileNotFoundError:
        parent = _open_directory(root_fd, path.parent)
    try:
        os.mkdir(path.name, 0o700, dir_fd=parent)
    finally:
        os.close(parent)
    made = open_in_root(root_fd, str(path), flags)
    os.fchmod(made, 0o755)
    return made


def _directory(parent: int, name: str, member: tarfile.TarInfo) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        except OSError as err:
            if err.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            os.unlink(name, dir_fd=parent)
            os.mkdir(name, 0o700, dir_fd=parent)
        else:
            os.close(fd)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.fchown(fd, member.uid, member.gid)
        os.fchmod(fd, member.mode & 0o7777)
    finally:
        os.close(fd)


def _remove(parent: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=parent)


def _copy_sparse(source: IO[bytes], fd: int) -> None:
    """Disk images are mostly holes: runs of zeros are skipped, not written."""
    size = 0
    while chunk := source.read(_CHUNK):
        if chunk == _ZEROS[: len(chunk)]:
            os.lseek(fd, len(chunk), os.SEEK_CUR)
        else:
            _write_all(fd, chunk)
        size += len(chunk)
    os.ftruncate(fd, size)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
