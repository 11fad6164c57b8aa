"""Reads an OCI archive: which image it is, and how big."""

from __future__ import annotations

import gzip
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast


@dataclass(frozen=True, slots=True)
class Layer:
    digest: str
    compressed: int
    #: The sum of its files.
    unpacked: int


@dataclass(frozen=True, slots=True)
class Archive:
    reference: str
    digest: str
    config: dict[str, Any]
    layers: tuple[Layer, ...]

    @property
    def compressed(self) -> int:
        return sum(layer.compressed for layer in self.layers)

    @property
    def unpacked(self) -> int:
        return sum(layer.unpacked for layer in self.layers)


def read(path: Path) -> Archive:
    with tarfile.open(path) as tar:
        entry = _json(tar, "index.json")["manifests"][0]
        manifest = _blob(tar, entry["digest"])
        return Archive(
            reference=entry.get("annotations", {}).get("org.opencontainers.image.ref.name", ""),
            digest=entry["digest"],
            config=_blob(tar, manifest["config"]["digest"]),
            layers=tuple(_layer(tar, layer) for layer in manifest["layers"]),
        )


def open_layer(tar: tarfile.TarFile, digest: str) -> tarfile.TarFile:
    packed = cast("IO[bytes]", tar.extractfile(_path(digest)))
    return tarfile.open(fileobj=gzip.GzipFile(fileobj=packed), mode="r|")


def _layer(tar: tarfile.TarFile, entry: dict[str, Any]) -> Layer:
    with open_layer(tar, entry["digest"]) as layer:
        return Layer(entry["digest"], entry["size"], sum(member.size for member in layer))


def _blob(tar: tarfile.TarFile, digest: str) -> dict[str, Any]:
    return _json(tar, _path(digest))


def _path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _json(tar: tarfile.TarFile, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.load(cast("IO[bytes]", tar.extractfile(name)))
    return value
