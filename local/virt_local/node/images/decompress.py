"""Layers as streams of plain tar: what is read is hashed on both sides of the decompressor."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from virt_local.node.images.layout import Descriptor, ImageError

_CHUNK = 1 << 20
_END_S = 60.0


class HashingReader(io.RawIOBase):
    """Passes bytes through and remembers their digest."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self._hash.update(data)
        return data

    def drain(self) -> None:
        """Reads what is left, so that the digest covers everything."""
        while self.read(_CHUNK):
            pass

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def open_layer(path: Path, layer: Descriptor) -> Iterator[tuple[HashingReader, HashingReader]]:
    """The layer as stored and as plain tar. Read the second; both digests are right once it is drained."""
    with path.open("rb") as stream:
        stored = HashingReader(stream)
        kind = layer.media_type.rpartition("+")[2] if "+" in layer.media_type else layer.media_type.rpartition(".")[2]
        if kind == "gzip":
            plain = gzip.GzipFile(fileobj=stored)
            yield stored, HashingReader(cast(IO[bytes], plain))
        elif kind == "tar":
            yield stored, HashingReader(cast(IO[bytes], stored))
        elif kind == "zstd":
            with _zstd(path, stored) as unpacked:
                yield stored, unpacked
        else:
            raise ImageError(f"the layer {layer.digest} has the unknown type {layer.media_type!r}")


@contextmanager
def _zstd(path: Path, stored: HashingReader) -> Iterator[HashingReader]:
    program = shutil.which("zstd")
    if program is None:
        raise ImageError("the image has zstd layers: install the package zstd")
    stored.drain()
    process = subprocess.Popen([program, "-dcq", str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield HashingReader(process.stdout)
        if process.wait(_END_S) != 0:
            raise ImageError(f"zstd could not unpack {path.name}")
    finally:
        process.kill()
        process.stdout.close()
        process.wait(_END_S)
