"""The figures as vhostmd writes them: XML, and a disk with a header before it. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from xml.sax.saxutils import escape

HOST, VM = "host", "vm"

DISK_BYTES = 256 << 10
_SIGNATURE = b"mvbd"
#: Signature, whether it is being written, the sum of the text's bytes, their number.
_HEADER = struct.Struct(">4siiI")
_MAX_TEXT = DISK_BYTES - 24
_SUM_MASK = 0x7FFFFFFF

_TYPES: dict[type, str] = {int: "uint64", float: "real64", str: "string"}


@dataclass(frozen=True, slots=True)
class Metric:
    context: str
    name: str
    value: int | float | str
    unit: str = ""


def to_xml(metrics: Iterable[Metric]) -> str:
    return "".join(("<metrics>\n", *map(_element, metrics), "</metrics>\n"))


def _element(metric: Metric) -> str:
    unit = f' unit="{metric.unit}"' if metric.unit else ""
    value = f"{metric.value:.6f}" if isinstance(metric.value, float) else escape(str(metric.value))
    kind = _TYPES[type(metric.value)]
    return (
        f'  <metric type="{kind}" context="{metric.context}"{unit}>\n'
        f"    <name>{metric.name}</name>\n    <value>{value}</value>\n  </metric>\n"
    )


def header(text: bytes, *, busy: bool) -> bytes:
    return _HEADER.pack(_SIGNATURE, int(busy), sum(text) & _SUM_MASK, len(text))


def body(text: str) -> bytes:
    """What stands behind the header; the rest of the disk stays as it is. Raises ValueError when there is no room."""
    encoded = text.encode()
    if len(encoded) > _MAX_TEXT:
        raise ValueError(f"{len(encoded)} bytes of metrics do not fit on the disk")
    return encoded
