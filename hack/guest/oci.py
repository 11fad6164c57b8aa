"""Writes an OCI image layout with one layer."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
REFERENCE = "org.opencontainers.image.ref.name"
DISK_USER = 107


class Layout:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._blobs = directory / "blobs" / "sha256"
        self._blobs.mkdir(parents=True)

    def blob(self, data: bytes, media_type: str) -> dict[str, Any]:
        """Stores the bytes and returns their descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        (self._blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def json_blob(self, value: dict[str, Any], media_type: str) -> dict[str, Any]:
        return self.blob(_canonical(value), media_type)

    def finish(self, manifest: dict[str, Any]) -> None:
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]}
        (self._directory / "index.json").write_bytes(_canonical(index))
        (self._directory / "oci-layout").write_bytes(_canonical({"imageLayoutVersion": "1.0.0"}))


def write_layout(directory: Path, reference: str, files: dict[str, Path], command: list[str] | None = None) -> None:
    tar = _tar(files)
    layout = Layout(directory)
    layer = layout.blob(gzip.compress(tar, compresslevel=6, mtime=0), LAYER)
    config = layout.json_blob(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": command} if command else {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]},
            "history": [{"created_by": "hack/guest/build"}],
        },
        CONFIG,
    )
    manifest = layout.json_blob(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}, MANIFEST
    )
    layout.finish(
        {**manifest, "annotations": {REFERENCE: reference}, "platform": {"architecture": "amd64", "os": "linux"}}
    )


def _tar(files: dict[str, Path]) -> bytes:
    """Owned by uid 107, as disks of this kind are, and readable by all."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in sorted({str(Path(name).parent) for name in files}):
            tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o755))
        for name, source in sorted(files.items()):
            data = source.read_bytes()
            tar.addfile(_entry(name, tarfile.REGTYPE, 0o444, len(data)), io.BytesIO(data))
    return stream.getvalue()


def _entry(name: str, kind: bytes, mode: int, size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.mtime = kind, mode, size, 0
    entry.uid = entry.gid = DISK_USER if kind == tarfile.REGTYPE else 0
    return entry


def _canonical(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
