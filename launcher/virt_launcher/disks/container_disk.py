"""Disks and kernels out of container images, which the Pod mounts as read-only image volumes.

Nothing in such an image is trusted: every path is opened beneath the mount without following links, and what QEMU
gets is a qcow2 overlay of ours over a file whose format we checked.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from virt_core.runtime.files import open_beneath
from virt_core.runtime.record import record
from virt_launcher.disks import qcow2
from virt_launcher.disks.images import BadImageError, inspect
from virt_launcher.disks.sources import DiskSource, supports_direct_io
from virt_launcher.errors import InvalidVMIError

_DISK_DIR = "disk"
_SHOWN = 8


@record(frozen=True, slots=True)
class ImageFile:
    """Where an image is mounted, which field of the VMI asks for a file of it, and the image's name for people."""

    root: Path
    field: str
    image: str

    def refuse(self, message: str) -> InvalidVMIError:
        return InvalidVMIError(self.field, f"image {self.image!r}: {message}")

    def open(self, path: str) -> int:
        """Opens a regular file of the image; says in the user's words why not."""
        try:
            fd = open_beneath(self.root, path.lstrip("/"), os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise self.refuse(self.why_not(path, error)) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise self.refuse(f"{path} is not a regular file")
        return fd

    def why_not(self, path: str, error: OSError) -> str:
        if error.errno == errno.ENOENT and not self.root.is_dir():
            return f"it is not mounted at {self.root}"
        if error.errno == errno.ENOENT:
            parent = os.path.dirname(path.strip("/"))
            found = listing(self.root, parent)
            return f"there is no file {path}; /{parent} has: {found}" if found else f"there is no file {path}"
        if error.errno in (errno.ELOOP, errno.EXDEV):
            return f"{path} is or goes through a symbolic link; name the file itself"
        if error.errno in (errno.EACCES, errno.EPERM):
            return f"{path} cannot be read by user {os.getuid()}; make it readable for all"
        return f"{path} cannot be opened: {error.strerror}"


def listing(root: Path, directory: str) -> str:
    """A few names for an error message; empty when there is nothing to show."""
    try:
        fd = open_beneath(root, directory or ".", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return ""
    try:
        names = sorted(os.listdir(fd))
    finally:
        os.close(fd)
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return ", ".join(names[:_SHOWN] + more)


def find_disk(image: ImageFile, path: str) -> str:
    """The path of the disk in the image: as given, or the only file of /disk."""
    if path:
        return path
    names = _regular_files(image)
    if names is None:
        found = listing(image.root, "")
        raise image.refuse(f"it has no directory /disk with a disk file{f'; its root has: {found}' if found else ''}")
    if len(names) != 1:
        found = ", ".join(names) or "nothing"
        raise image.refuse(f"/disk must hold exactly one disk file, found {found}; choose one with containerDisk.path")
    return f"/{_DISK_DIR}/{names[0]}"


def _regular_files(image: ImageFile) -> list[str] | None:
    """The names of the files in /disk; None when there is no such directory."""
    try:
        fd = open_beneath(image.root, _DISK_DIR, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and image.root.is_dir():
            return None
        raise image.refuse(image.why_not(f"/{_DISK_DIR}", error)) from error
    try:
        with os.scandir(fd) as entries:
            return sorted(e.name for e in entries if e.is_file(follow_symlinks=False))
    finally:
        os.close(fd)


def make_overlay(image: ImageFile, path: str, overlay: Path) -> DiskSource:
    """A qcow2 layer over the image's disk, for what the guest writes. Made once; later calls find it."""
    path = find_disk(image, path)
    fd = image.open(path)
    try:
        facts = inspect(fd)
    except BadImageError as error:
        raise image.refuse(f"{path} cannot be a disk: {error}") from error
    finally:
        os.close(fd)
    backing = qcow2.Backing(str(image.root / path.lstrip("/")), facts.format)
    overlay.parent.mkdir(parents=True, exist_ok=True)
    if not overlay.exists():
        qcow2.create(overlay, facts.virtual_size, backing)
    return DiskSource(str(overlay), "qcow2", backing, supports_direct_io(overlay, backing.path))


def kernel_file(root: Path, field: str, image: str, path: str) -> str:
    """Where QEMU finds the kernel or the initrd of `path` in the image."""
    os.close(ImageFile(root, field, image).open(path))
    return str(root / path.lstrip("/"))
