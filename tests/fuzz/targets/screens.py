"""Pictures of the screen as QEMU sends them, in pieces: a QEMU that its guest has taken over sends what it likes.

An input's first byte says how long the pieces are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz.mutate import noisy
from fuzz.target import Run, Target
from hypothesis import strategies as st

from virt_launcher.errors import LauncherError
from virt_launcher.machine.picture import MAX_PICTURE_BYTES, Picture

_PPM = b"P6\n4 2\n255\n" + bytes(range(24))
_PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\0IEND\xaeB`\x82"
SEEDS = (
    _PPM,
    _PNG,
    b"P6 # a\n# b\n 1 1 255 abc",
    b"P6\n999999 1\n255\n",
    b"P6" + b" " * 600,
    b"P6\n1 1\n255\n" + b"a" * 9000,
)


@st.composite
def pictures(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(SEEDS))
    return bytes([draw(st.sampled_from((1, 3, 64, 255)))]) + (draw(noisy(data)) if draw(st.booleans()) else data)


@contextmanager
def door(_directory: Path) -> Iterator[Run]:
    yield judge


def judge(data: bytes) -> None:
    step, picture = (data[0] if data else 0) or 1, Picture()
    try:
        for start in range(1, len(data), step):
            picture.feed(data[start : start + step])
        made = picture.finish()
    except LauncherError:
        return
    assert made.startswith(b"\x89PNG")
    assert len(made) <= MAX_PICTURE_BYTES + 4096


FAMILIES = {
    "rows": lambda n: b"\xff" + f"P6\n30 {n}\n255\n".encode() + bytes(90 * n),
    "beyond": lambda n: b"\x40P6\n1 1\n255\n" + bytes(64 * n),
    "comments": lambda n: b"\xffP6" + b" #\n" * n,
}

TARGET = Target("screens", pictures(), door, 400, FAMILIES)
