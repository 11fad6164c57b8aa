"""The heads of disk images, as the launcher reads them before QEMU does.

Whatever a head claims: what passes names no other file, is not larger than we take, and its overlay stays small.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz import corpus
from fuzz.mutate import noisy
from fuzz.target import Run, Target
from hypothesis import strategies as st

from virt_launcher.disks import qcow2
from virt_launcher.disks.images import MAX_VIRTUAL_SIZE, BadImageError, ImageFacts, inspect

_OVERLAY_BYTES = 4 << 20
#: Behind a head there is room for tables.
_BODY_BYTES = 1 << 20
_HEAD = struct.Struct(">4sIQIIQI")
_FIELDS = {
    4: 4,
    8: 8,
    16: 4,
    20: 4,
    24: 8,
    32: 4,
    36: 4,
    40: 8,
    48: 8,
    56: 4,
    60: 4,
    64: 8,
    72: 8,
    80: 8,
    88: 8,
    96: 4,
    100: 4,
}
_VALUES = (
    0,
    1,
    2,
    3,
    4,
    9,
    16,
    21,
    22,
    63,
    104,
    112,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 46,
    (1 << 46) + 1,
)
_VALUES += (MAX_VIRTUAL_SIZE + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """A real head with some of its fields changed."""
    seeds = [path.read_bytes() for path in corpus.files("images")]
    good = [seed for seed in seeds if seed.startswith(b"QFI")]
    data = bytearray(draw(st.sampled_from(good) | st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.sampled_from(sorted(_FIELDS)))
        size = _FIELDS[at]
        data[at : at + size] = (draw(st.sampled_from(_VALUES)) % (1 << 8 * size)).to_bytes(size, "big")
    return draw(noisy(bytes(data))) if draw(st.integers(0, 3)) == 0 else bytes(data)


@contextmanager
def door(directory: Path) -> Iterator[Run]:
    yield lambda data: judge(directory, data)


def facts_of(data: bytes) -> ImageFacts | None:
    """None: refused."""
    fd = os.memfd_create("image")
    try:
        os.write(fd, data)
        if data.startswith(b"QFI\xfb"):
            os.ftruncate(fd, max(len(data), _BODY_BYTES))
        return inspect(fd)
    except BadImageError:
        return None
    finally:
        os.close(fd)


def judge(directory: Path, data: bytes) -> None:
    facts = facts_of(data)
    if facts is None:
        return
    assert 0 < facts.virtual_size <= MAX_VIRTUAL_SIZE
    assert facts.format in ("raw", "qcow2")
    if facts.format == "qcow2":
        _, version, backing, *_ = _HEAD.unpack_from(data)
        assert not backing
        assert version == 2 or not int.from_bytes(data[72:80], "big") & 0b110
    overlay = directory / "overlay.qcow2"
    qcow2.create(overlay, facts.virtual_size, qcow2.Backing("/image", facts.format))
    assert overlay.stat().st_size <= _OVERLAY_BYTES


TARGET = Target("images", heads(), door, 600)
