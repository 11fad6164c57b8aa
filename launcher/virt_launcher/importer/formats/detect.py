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
_OWN = {"VMDK": "vmdk", "VHDX": "vhdx", "VDI": "vdi"}


def format_of(head: bytes) -> str:
    """Raises Refused for what we know and do not take."""
    if head.startswith(QCOW2_MAGIC):
        return QCOW2
    for offset, magic, name in FOREIGN:
        if head[offset : offset + len(magic)] == magic:
            return _known(name, head)
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
