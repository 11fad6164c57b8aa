"""The layer over a raw disk in which QEMU keeps which blocks have changed: a qcow2 whose data are the raw disk itself.

Bitmaps need a qcow2 to outlive the machine, and a disk in a claim is raw and stays so. So the layer, in the machine's
own claim, maps each cluster of the disk to the same place of the raw file: it holds bitmaps and no data, and whoever
reads the raw file alone reads the whole disk. It can be made anew at any time; what is lost then is only the knowledge
of what has changed, and the next backup is a full one.

The claim is the user's, who may leave anything in it. A layer that we would not have made ourselves is replaced, never
opened: a qcow2 can name other files of the Pod. One that is older than the raw file is replaced too, since somebody has
changed the disk and the bitmaps do not know.
"""

from __future__ import annotations

import array
import os
import stat
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from virt_core.runtime.files import open_beneath
from virt_core.runtime.logs import get_logger
from virt_core.runtime.record import record
from virt_launcher.disks.held import Identity
from virt_launcher.disks.sources import DiskSource, supports_direct_io

log = get_logger(__name__)

#: The largest there is: the tables of a disk of 512 GiB are one cluster.
_CLUSTER_BITS = 21
_CLUSTER = 1 << _CLUSTER_BITS
_ENTRIES = _CLUSTER // 8
_HEADER_LENGTH = 104
_REFCOUNT_ORDER = 4
_COUNTS_AT, _BLOCK_AT, _L1_AT, _L2_AT = (n * _CLUSTER for n in (1, 2, 3, 4))
_COPIED = 1 << 63
_FIXED = struct.Struct(">4sIQIIQIIQQIIQ")
_FEATURES = struct.Struct(">QQQII")
_EXTENSION = struct.Struct(">II")
_DATA_FILE, _RAW, _BITMAPS_BIT = 1 << 2, 1 << 1, 1 << 0
_EXT_END, _EXT_DATA, _EXT_BITMAPS, _EXT_NAMES = 0, 0x44415441, 0x23852875, 0x6803F857
#: What is read of a layer to judge it.
_START = 4096


@record(frozen=True, slots=True)
class Layer:
    """Where the layer of a volume is, and the raw disk below it."""

    directory: Path
    name: str
    data: str
    size: int
    field: str

    @property
    def path(self) -> Path:
        return self.directory / self.name

    def open(self, flags: int) -> int:
        return open_beneath(self.directory, self.name, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o660)


def lay(source: DiskSource, layer: Layer, *, in_use: bool) -> DiskSource:
    """The disk with its layer. `in_use`: a machine on another node still writes to both. Raises OSError."""
    if not (_is_sound(layer) and (in_use or _is_current(layer))):
        _make(layer)
    fd = layer.open(os.O_RDWR)
    try:
        identity = Identity.of(fd, layer.field)
    finally:
        os.close(fd)
    return DiskSource(
        str(layer.path),
        "qcow2",
        direct_io=source.direct_io and supports_direct_io(layer.path),
        preallocated=source.preallocated,
        identity=source.identity,
        blocks=source.blocks,
        layer=identity,
    )


def layer_of(directory: Path, volume: str, claim: str, source: DiskSource, field: str) -> Layer:
    """Another claim gets another layer."""
    fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)
    return Layer(directory, f"{volume}.{claim}.qcow2", source.path, size, field)


def _is_current(layer: Layer) -> bool:
    """QEMU writes its bitmaps after the last data. A block device does not say when it was changed."""
    data = os.stat(layer.data, follow_symlinks=False)
    if stat.S_ISBLK(data.st_mode):
        return True
    fd = layer.open(os.O_RDONLY)
    try:
        current = os.fstat(fd).st_mtime_ns >= data.st_mtime_ns
    finally:
        os.close(fd)
    if not current:
        log.warning("a disk was changed since its layer was last used, so the layer is made anew", layer=layer.name)
    return current


def _is_sound(layer: Layer) -> bool:
    try:
        fd = layer.open(os.O_RDONLY)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("the layer of a disk cannot be used", layer=layer.name, error=str(error))
        return False
    try:
        start = os.pread(fd, _START, 0)
    finally:
        os.close(fd)
    sound = is_ours(start, layer.data, layer.size)
    if not sound:
        log.warning("the layer of a disk is not as we make it, so it is made anew", layer=layer.name)
    return sound


def is_ours(start: bytes, data: str, size: int) -> bool:
    """Whether the first bytes of a qcow2 name this raw disk, all of it, and no other file."""
    if len(start) < _HEADER_LENGTH:
        return False
    magic, version, backing, _, bits, has, encryption, _, _, _, _, snapshots, _ = _FIXED.unpack_from(start)
    incompatible, _, auto, _, length = _FEATURES.unpack_from(start, _FIXED.size)
    plain = (magic, version, backing, bits, has, encryption, snapshots) == (
        b"QFI\xfb", 3, 0, _CLUSTER_BITS, size, 0, 0
    )  # fmt: skip
    if not plain or incompatible != _DATA_FILE or auto & ~_BITMAPS_BIT != _RAW:
        return False
    found = dict(_extensions(start, length))
    known = {_EXT_DATA, _EXT_BITMAPS, _EXT_NAMES}
    return found.get(_EXT_DATA) == os.fsencode(data) and found.keys() <= known


def _extensions(start: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at + _EXTENSION.size <= len(start):
        kind, length = _EXTENSION.unpack_from(start, at)
        if kind == _EXT_END:
            return
        at += _EXTENSION.size
        yield kind, start[at : at + length]
        at += length + -length % 8
    yield -1, b""  # No end is in sight.


def _make(layer: Layer) -> None:
    """Whole or not at all. Beneath the directory, and over nothing but an older layer."""
    unfinished = f"{layer.name}.unfinished"
    directory = os.open(layer.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _remove(directory, unfinished)
        fd = open_beneath(directory, unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
        try:
            _write(fd, layer)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(unfinished, layer.name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)
    log.info("made the layer that tracks changed blocks", layer=layer.name, bytes=layer.size)


def _remove(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return


def _write(fd: int, layer: Layer) -> None:
    clusters = -(-layer.size // _CLUSTER)
    tables = max(-(-clusters // _ENTRIES), 1)
    used = 4 + tables
    os.ftruncate(fd, used * _CLUSTER)
    os.pwrite(fd, _header(layer, tables), 0)
    os.pwrite(fd, struct.pack(">Q", _BLOCK_AT), _COUNTS_AT)
    os.pwrite(fd, struct.pack(">H", 1) * used, _BLOCK_AT)
    os.pwrite(fd, _big_endian(_L2_AT + n * _CLUSTER | _COPIED for n in range(tables)), _L1_AT)
    for table in range(tables):
        first, last = table * _ENTRIES, min((table + 1) * _ENTRIES, clusters)
        os.pwrite(fd, _big_endian(n * _CLUSTER | _COPIED for n in range(first, last)), _L2_AT + table * _CLUSTER)


def _big_endian(numbers: Iterator[int]) -> bytes:
    found = array.array("Q", numbers)
    if sys.byteorder == "little":
        found.byteswap()
    return found.tobytes()


def _header(layer: Layer, tables: int) -> bytes:
    fixed = _FIXED.pack(
        b"QFI\xfb", 3, 0, 0, _CLUSTER_BITS, layer.size, 0, tables, _L1_AT, _COUNTS_AT, 1, 0, 0
    )  # fmt: skip
    features = _FEATURES.pack(_DATA_FILE, 0, _RAW, _REFCOUNT_ORDER, _HEADER_LENGTH)
    data = os.fsencode(layer.data)
    named = _EXTENSION.pack(_EXT_DATA, len(data)) + data + b"\0" * (-len(data) % 8)
    return fixed + features + named + _EXTENSION.pack(_EXT_END, 0)
