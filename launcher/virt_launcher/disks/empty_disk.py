"""Empty disks: a qcow2 file that grows, gone with the Pod."""

from __future__ import annotations

from pathlib import Path

from virt_core.apis.quantity import QuantityError, parse_quantity
from virt_launcher.disks import qcow2
from virt_launcher.disks.sources import DiskSource, supports_direct_io
from virt_launcher.errors import InvalidVMIError

_MIB = 1 << 20


def make_empty_disk(path: Path, capacity: str | int | float, field: str) -> DiskSource:
    """Made once; later calls find it. The size is rounded down to whole MiB."""
    size = _size(capacity, field)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        qcow2.create(path, size)
    return DiskSource(str(path), "qcow2", None, supports_direct_io(path))


def _size(capacity: str | int | float, field: str) -> int:
    try:
        size = int(parse_quantity(capacity))
    except QuantityError as error:
        raise InvalidVMIError(field, str(error)) from error
    if size < _MIB:
        raise InvalidVMIError(field, f"{capacity} is less than 1Mi")
    return size // _MIB * _MIB
