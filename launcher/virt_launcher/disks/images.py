"""What a disk image is, found out without trusting it.

Images come from users. The classic holes of this field are formats that name other files (a backing file, an
external data file) and tools that guess. So: a few bytes of the header are read here, only raw and self-contained
qcow2 pass, and QEMU is always told the format.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array

from virt_core.runtime.record import record

QCOW2_MAGIC = b"QFI\xfb"
#: magic, version, backing offset, backing size, cluster bits, size, crypt method, then of the tables: entries of the
#: first level, its offset, offset of the refcounts, their clusters, number of snapshots, their offset
_QCOW2_HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
_INCOMPATIBLE_AT = 72
_HEADER_LENGTH_AT = 100
#: What QEMU takes as well.
_MAX_L1_BYTES, _MAX_REFCOUNT_BYTES, _MAX_SNAPSHOTS = 32 << 20, 8 << 20, 65536
#: How much of the first level is looked at: enough for 64 TiB in the usual clusters.
_LOOKED_AT_BYTES = 1 << 20
_OFFSET_BITS = 0x00FF_FFFF_FFFF_FE00
_CORRUPT, _EXTERNAL_DATA, _COMPRESSION_TYPE, _EXTENDED_L2 = 1 << 1, 1 << 2, 1 << 3, 1 << 4
_COMPRESSION_AT = 104
#: dirty, corrupt, external data, compression type, extended L2 entries
_KNOWN_INCOMPATIBLE = 0b11111
_SECTOR = 512
HEAD_BYTES = 4096
#: Beyond this the tables of our overlay would not fit, and no storage of ours is that large.
MAX_VIRTUAL_SIZE = 64 << 40

#: Where the signature of a format that we do not take stands in the file.
FOREIGN = (
    (0, b"KDMV", "VMDK"),
    (0, b"COWD", "VMDK"),
    (0, b"# Disk DescriptorFile", "VMDK"),
    (0, b"WithoutFreeSpace", "Parallels"),
    (0, b"WithouFreSpacExt", "Parallels"),
    (0, b"vhdxfile", "VHDX"),
    (0, b"conectix", "VHD"),
    (0, b"QED\0", "QED"),
    (64, b"\x7f\x10\xda\xbe", "VDI"),
    (0, b"LUKS\xba\xbe", "LUKS"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
)


class BadImageError(ValueError):
    """The image cannot be used; the text says why, without naming it."""


@record(frozen=True, slots=True)
class ImageFacts:
    format: str
    virtual_size: int


def inspect(fd: int) -> ImageFacts:
    """Raw or a self-contained qcow2; raises BadImageError for everything else."""
    head = os.pread(fd, HEAD_BYTES, 0)
    if head.startswith(QCOW2_MAGIC):
        return _inspect_qcow2(fd, head)
    for offset, magic, name in FOREIGN:
        if head[offset : offset + len(magic)] == magic:
            raise BadImageError(f"it is a {name} file; use qcow2 or raw")
    size = os.fstat(fd).st_size
    if size == 0:
        raise BadImageError("it is empty")
    return ImageFacts("raw", _checked_size(size))


def _inspect_qcow2(fd: int, head: bytes) -> ImageFacts:
    found = qcow2_header(head)
    _check_in_file(fd, found.tables, found.cluster)
    return ImageFacts("qcow2", _checked_size(found.virtual_size))


def qcow2_header(head: bytes) -> Qcow2Header:
    """What the first 4096 bytes of a qcow2 say, if it stands alone and claims nothing mad. Raises BadImageError."""
    if len(head) < _QCOW2_HEADER.size:
        raise BadImageError("its qcow2 header is cut off")
    _, version, backing, _, cluster_bits, size, crypt, *tables = _QCOW2_HEADER.unpack_from(head)
    if version not in (2, 3) or not 9 <= cluster_bits <= 21:
        raise BadImageError(f"its qcow2 header is not valid (version {version}, cluster bits {cluster_bits})")
    if backing:
        raise BadImageError("it has a backing file; flatten it with `qemu-img convert`")
    if crypt:
        raise BadImageError("it is encrypted")
    bits = 0
    if version == 3:
        bits = _check_incompatible(head)
        _check_length(head, 1 << cluster_bits)
    if size == 0:
        raise BadImageError("its virtual size is zero")
    _checked_size(size)
    zstd = bool(bits & _COMPRESSION_TYPE) and head[_COMPRESSION_AT : _COMPRESSION_AT + 1] == b"\1"
    found = Qcow2Header(size, cluster_bits, Tables(*tables), bool(bits & _EXTENDED_L2), zstd)
    _check_tables(found.tables, size, found.cluster)
    return found


@record(frozen=True, slots=True)
class Tables:
    l1_entries: int
    l1_at: int
    refcounts_at: int
    refcount_clusters: int
    snapshots: int
    snapshots_at: int


@record(frozen=True, slots=True)
class Qcow2Header:
    virtual_size: int
    cluster_bits: int
    tables: Tables
    extended: bool = False
    #: What compressed clusters are compressed with; else deflate.
    zstd: bool = False

    @property
    def cluster(self) -> int:
        return 1 << self.cluster_bits


def _check_tables(tables: Tables, size: int, cluster: int) -> None:
    """Small, as QEMU wants them."""
    l1_bytes, refcount_bytes = tables.l1_entries * 8, tables.refcount_clusters * cluster
    if l1_bytes > _MAX_L1_BYTES or refcount_bytes > _MAX_REFCOUNT_BYTES or tables.snapshots > _MAX_SNAPSHOTS:
        raise BadImageError("the tables that its qcow2 header claims are too large")
    if tables.l1_entries * (cluster // 8) * cluster < size // 2:  # Entries of extended tables have twice the length.
        raise BadImageError("the tables that its qcow2 header claims are too small for its virtual size")


def _check_in_file(fd: int, tables: Tables, cluster: int) -> None:
    """QEMU reads zeros behind the end of the file, and so would the guest."""
    l1_bytes, refcount_bytes = tables.l1_entries * 8, tables.refcount_clusters * cluster
    end = os.fstat(fd).st_size
    if tables.l1_at + l1_bytes > end or tables.refcounts_at + refcount_bytes > end:
        raise BadImageError("it is cut off: its tables lie behind its end")
    entries = array("Q", os.pread(fd, min(l1_bytes, _LOOKED_AT_BYTES), tables.l1_at))
    if sys.byteorder == "little":
        entries.byteswap()
    if any((entry & _OFFSET_BITS) + cluster > end for entry in entries if entry):
        raise BadImageError("it is cut off: its tables lie behind its end")


def _check_length(head: bytes, cluster: int) -> None:
    if not _HEADER_LENGTH_AT + 4 <= int.from_bytes(head[_HEADER_LENGTH_AT : _HEADER_LENGTH_AT + 4], "big") <= cluster:
        raise BadImageError("its qcow2 header is not valid (its length)")


def _checked_size(size: int) -> int:
    """A header may claim any size; the overlay over it is ours to make."""
    if size > MAX_VIRTUAL_SIZE:
        raise BadImageError(f"its virtual size of {size} bytes is beyond the limit of {MAX_VIRTUAL_SIZE >> 40} TiB")
    return round_up(size, _SECTOR)


def _check_incompatible(head: bytes) -> int:
    """The bits, if all of them are known."""
    if len(head) < _HEADER_LENGTH_AT + 4:
        raise BadImageError("its qcow2 header is cut off")
    bits = int.from_bytes(head[_INCOMPATIBLE_AT : _INCOMPATIBLE_AT + 8], "big")
    if bits & _EXTERNAL_DATA:
        raise BadImageError("it has an external data file; flatten it with `qemu-img convert`")
    if bits & _CORRUPT:
        raise BadImageError("it is marked as corrupt; repair it with `qemu-img check -r all`")
    if bits & ~_KNOWN_INCOMPATIBLE:
        raise BadImageError("it uses qcow2 features that virt-launcher does not know")
    return bits


def round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
