"""ACPI tables, whole ones and broken ones."""

from __future__ import annotations

import struct


def acpi_table(signature: str, body: bytes = b"licence", *, length: int | None = None, checksum: int = 0) -> bytes:
    """`length` is what its header says; `checksum` is by how much the sum of all bytes is off."""
    size = 36 + len(body) if length is None else length
    header = struct.pack("<4sIBB6s8sI4sI", signature.encode(), size, 1, 0, b"VIRTPD", b"TESTTABL", 1, b"TEST", 1)
    right = -sum(header + body) + checksum
    return header[:9] + bytes([right % 256]) + header[10:] + body
