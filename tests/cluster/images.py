"""Images without a registry: an OCI archive or layout goes to a node's containerd under names of our choice.

An imported image has no repository digest, yet a reference by digest must find it: so each image is imported under
`name:tag` and under `name@digest` at once, by naming both in the index of the archive that containerd reads.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .errors import ClusterError

_REF = "org.opencontainers.image.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True, slots=True)
class Image:
    """A manifest of an archive, with the names that it gets."""

    names: tuple[str, ...]
    descriptor: dict[str, Any] = field(hash=False)

    @property
    def digest(self) -> str:
        return str(self.descriptor["digest"])

    def entries(self) -> list[dict[str, Any]]:
        return [
            {**self.descriptor, "annotations": {**self.descriptor.get("annotations", {}), _CONTAINERD_NAME: name}}
            for name in self.names
        ]


class Source:
    """An OCI layout, in a directory or in an archive (`*.tar`, as buildah, skopeo and docker write it)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise ClusterError(f"There is no image at {path}.")

    def index(self) -> dict[str, Any]:
        try:
            plain: dict[str, Any] = json.loads(self._read("index.json"))
        except (KeyError, FileNotFoundError, tarfile.ReadError) as err:
            raise ClusterError(f"{self.path} is no OCI layout: it has no index.json.") from err
        return plain

    def images(self, name: str = "") -> list[Image]:
        """With `name` (for a source of one image) that is its name; else the source says what its images are called."""
        manifests = [entry for entry in self.index().get("manifests", []) if _is_image(entry)]
        if not manifests:
            raise ClusterError(f"{self.path} holds no image.")
        if name and len({entry["digest"] for entry in manifests}) > 1:
            raise ClusterError(f"{self.path} holds {len(manifests)} images, so --name cannot name one of them.")
        found = [Image(self._names(entry, name), entry) for entry in manifests]
        return found[:1] if name else found

    def write(self, output: IO[bytes], images: list[Image]) -> None:
        """The same layout as a stream, with an index that names the images as asked."""
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [e for each in images for e in each.entries()]}
        with tarfile.open(fileobj=output, mode="w|") as archive:
            _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            _add(archive, "index.json", json.dumps(index).encode())
            for name, size, content in self._blobs():
                info = tarfile.TarInfo(name)
                info.size = size
                archive.addfile(info, content)

    def _names(self, entry: dict[str, Any], name: str) -> tuple[str, ...]:
        own = entry.get("annotations", {})
        name = name or own.get(_CONTAINERD_NAME) or own.get(_REF) or ""
        return both_names(name, str(entry["digest"]), str(self.path))

    def _read(self, name: str) -> bytes:
        if self.path.is_dir():
            return (self.path / name).read_bytes()
        with tarfile.open(self.path) as archive:
            for member in archive:
                if member.name.removeprefix("./") == name:
                    return _content(archive, member).read()
        raise KeyError(name)

    def _blobs(self) -> Iterator[tuple[str, int, IO[bytes]]]:
        if self.path.is_dir():
            for path in sorted((self.path / "blobs").glob("*/*")):
                with path.open("rb") as content:
                    yield f"blobs/{path.parent.name}/{path.name}", path.stat().st_size, content
            return
        with tarfile.open(self.path) as archive:
            for member in archive:
                if member.isfile() and member.name.removeprefix("./").startswith("blobs/"):
                    yield member.name.removeprefix("./"), member.size, _content(archive, member)


def both_names(name: str, digest: str, source: str) -> tuple[str, ...]:
    """`name:tag` → that and `name@digest`."""
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag or "/" not in repository or "@" in name:
        raise ClusterError(
            f"{source} does not say what its image is called (found {name!r}): give it with --name REGISTRY/NAME:TAG."
        )
    return (name, f"{repository}@{digest}")


def _is_image(entry: dict[str, Any]) -> bool:
    """Attestations that some builders add have no platform."""
    return (entry.get("platform") or {}).get("architecture") != "unknown"


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    if content is None:
        raise ClusterError(f"{member.name!r} in the archive is no file.")
    return content


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def write_single(path: Path, name: str, files: dict[str, bytes], command: list[str]) -> None:
    """An archive of one image with one layer of programs: what a Pod's sandbox needs is no more than that."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for target, data in sorted(files.items()):
            info = tarfile.TarInfo(target)
            info.size, info.mode = len(data), 0o755
            archive.addfile(info, io.BytesIO(data))
    packed = gzip.compress(layer.getvalue(), mtime=0)
    config = {
        "architecture": _architecture(),
        "os": "linux",
        "config": {"Entrypoint": command, "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer.getvalue())]},
    }
    _write_archive(path, name, packed, json.dumps(config).encode())


def _write_archive(path: Path, name: str, layer: bytes, config: bytes) -> None:
    media = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _descriptor(f"{media}.config.v1+json", config),
        "layers": [_descriptor(f"{media}.layer.v1.tar+gzip", layer)],
    }
    plain = json.dumps(manifest).encode()
    top = {"schemaVersion": 2, "manifests": [{**_descriptor(_MANIFEST, plain), "annotations": {_REF: name}}]}
    with _replacing(path) as temporary, tarfile.open(temporary, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", json.dumps(top).encode())
        for blob in (layer, config, plain):
            _add(archive, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.new")
    yield temporary
    temporary.replace(path)


def _descriptor(media: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media, "digest": _digest(data), "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
