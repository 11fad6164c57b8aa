"""Layers of container images, as virt-local's node unpacks them: tar from strangers.

An input's first line is the layer's form (tar or gzip); the rest is the layer. Whatever it holds: nothing is written
outside of the directory, and what is written is not more than what came.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz.mutate import noisy
from fuzz.target import Run, Target
from hypothesis import strategies as st
from unit.local.node.layouts import directory as folder
from unit.local.node.layouts import entry, hard_link, link, tar

from virt_local.node.images.layout import Descriptor, Image, ImageConfig, ImageError, Manifest, RootFS, blob_path
from virt_local.node.images.unpack import unpack

_TYPE = "application/vnd.oci.image.layer.v1.tar"
_FIELDS = {0: 100, 100: 8, 108: 8, 116: 8, 124: 12, 136: 12, 148: 8, 156: 1, 157: 100, 257: 8, 329: 8, 337: 8, 345: 155}
_WORDS = (
    b"",
    b"\0" * 12,
    b"77777777777",
    b"-1",
    b"\x80" + b"\xff" * 11,
    b"\xff" * 12,
    b"..",
    b"/etc",
    b"a/" * 40,
    b"L",
    b"x",
    b"S",
    b"\xc3",
)
#: Sparse files and padded names may make a little more of a layer than it has.
_MORE = 1 << 20


def _pax(**headers: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, pax_headers={}) as archive:
        info, data = entry("f", b"data")
        info.pax_headers = headers
        archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


SEEDS = (
    tar([folder("d"), entry("d/f", b"data"), link("l", "d/f"), hard_link("h", "d/f"), entry("d/.wh.f")]),
    tar([entry("a" * 200, b"x"), link("s", "b" * 200), entry(".wh..wh..opq"), entry("fifo", type=tarfile.FIFOTYPE)]),
    _pax(path="p" * 300, mtime="1.5"),
    _pax(mtime="nan", uid="99999999999999999999"),
    _pax(size="99999999999", path="a\0b"),
    _pax(
        **{
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.realsize": "99999999999",
            "GNU.sparse.name": "s",
        }
    ),
    _pax(**{"GNU.sparse.map": "0,1,99999999,1", "GNU.sparse.size": "99999999999"}),
    _pax(**{"SCHILY.xattr.security.capability": "x\udcff"}),
)


def _mended(data: bytes) -> bytes:
    """With the right checksum in every head, so that more than the checksum is looked at."""
    blocks = bytearray(data)
    for at in range(0, len(blocks) - 511, 512):
        head = blocks[at : at + 512]
        if head[257:262] == b"ustar":
            head[148:156] = b" " * 8
            blocks[at + 148 : at + 156] = b"%06o\0 " % sum(head)
    return bytes(blocks)


@st.composite
def layers(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 3))):
        block = draw(st.integers(0, max(len(data) // 512 - 1, 0))) * 512
        at = draw(st.sampled_from(sorted(_FIELDS)))
        word = draw(st.sampled_from(_WORDS))[: _FIELDS[at]]
        data = data[: block + at] + word.ljust(_FIELDS[at], b"\0") + data[block + at + _FIELDS[at] :]
    data = _mended(draw(noisy(data)) if draw(st.integers(0, 3)) == 0 else data)
    if draw(st.integers(0, 3)) > 0:
        return b"tar\n" + data
    packed = gzip.compress(data, 1, mtime=0)
    return b"gzip\n" + (draw(noisy(packed)) if draw(st.booleans()) else packed)


@contextmanager
def door(directory: Path) -> Iterator[Run]:
    store = directory / "store"
    (store / "blobs" / "sha256").mkdir(parents=True)
    (directory / "beside").write_text("untouched")
    yield lambda data: judge(directory, store, data)


def judge(directory: Path, store: Path, data: bytes) -> None:
    form, _, layer = data.partition(b"\n")
    image = _image(store, "+gzip" if form == b"gzip" else "", layer)
    root = directory / "root"
    root.mkdir()
    try:
        unpack(store, image, root)
    except ImageError:
        pass
    finally:
        written = _written(root)
        shutil.rmtree(root)
        blob_path(store, image.manifest.layers[0].digest).unlink()
    assert (directory / "beside").read_text() == "untouched"
    assert sorted(os.listdir(directory)) == ["beside", "store"]
    assert written <= 64 * len(layer) + _MORE


def _image(store: Path, form: str, layer: bytes) -> Image:
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    blob_path(store, digest).write_bytes(layer)
    try:
        plain = hashlib.sha256(gzip.decompress(layer) if form else layer).hexdigest()
    except Exception:  # The layer is broken, which is what this is about.
        plain = "0" * 64
    described = Descriptor(digest=digest, media_type=_TYPE + form, size=len(layer))
    config = ImageConfig(rootfs=RootFS(diff_ids=[f"sha256:{plain}"]))
    return Image("localhost/x:1", digest, Manifest(config=described, layers=[described]), config)


def _written(root: Path) -> int:
    """What the files claim to have, holes included: reading a claim is work too."""
    files = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    return sum(file.lstat().st_size for file in files if file.is_file() and not file.is_symlink())


FAMILIES = {
    "files": lambda n: b"tar\n" + tar([entry(f"f{i}", b"x") for i in range(n)]),
    "links": lambda n: b"tar\n" + tar([link(f"l{i}", "x") for i in range(n)]),
    "opaque": lambda n: b"tar\n" + tar([entry(f"d{i}/.wh..wh..opq") for i in range(n)]),
}

TARGET = Target("layers", layers(), door, 500, FAMILIES, parts=16)
