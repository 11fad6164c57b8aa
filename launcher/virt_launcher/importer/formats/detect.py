"""Which format a file has, by its first bytes."""

from __future__ import annotations

from collections.abc import Callable

from virt_launcher.disks.images import FOREIGN, HEAD_BYTES, QCOW2_MAGIC
from virt_launcher.importer.formats.base import Decoder, Raw, refuse
from virt_launcher.importer.formats.qcow2 import Qcow2
from virt_launcher.importer.formats.vdi import Vdi
from virt_launcher.importer.formats.vhdx import Vhdx
from virt_launcher.importer.formats.vmdk import Vmdk
from virt_launcher.importer.target import Sink

#: How much of a file must be there to say.
HEAD = HEAD_BYTES
RAW, QCOW2 = "raw", "qcow2"
#: What people take for a disk, and what holds one: as raw disks they would be accepted and never boot.
_NO_DISKS = (
    (0, b"PK\x03\x04", "zip"),
    (0, b"BZh", "bzip2"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (257, b"ustar", "tar or OVA"),
    (0, b"Bochs Virtual HD Image", "Bochs"),
    (0, b"#!/bin/sh\n#V2.0 Format\n", "cloop"),
)
_OWN = {"VMDK": "vmdk", "VHDX": "vhdx", "VDI": "vdi"}


def format_of(head: bytes) -> str:
    """Raises Refused for what we know and do not take."""
    if head.startswith(QCOW2_MAGIC):
        return QCOW2
    for offset, magic, name in FOREIGN:
        if head[offset : offset + len(magic)] == magic:
            return _known(name, head)
    for offset, magic, name in _NO_DISKS:
        if head[offset : offset + len(magic)] == magic:
            raise refuse(f"it is a {name} file and no disk; take the disk out of it first")
    return RAW


def _known(name: str, head: bytes) -> str:
    if name not in _OWN:
        raise refuse(f"it is a {name} file; use qcow2, raw, VMDK, VDI or VHDX")
    if name == "VMDK" and not head.startswith(b"KDMV"):
        raise refuse("it is a VMDK that names other files; convert it to one file with `qemu-img convert`")
    return _OWN[name]


def decoder(kind: str, head: bytes, sink: Sink, make_file: Callable[[], int] | None) -> Decoder:
    if kind == QCOW2:
        return Qcow2(sink, head, make_file)
    if kind == RAW:
        return Raw(sink)
    return {"vdi": Vdi, "vmdk": Vmdk, "vhdx": Vhdx}[kind](sink)
