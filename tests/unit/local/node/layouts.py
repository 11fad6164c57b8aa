"""Builds small OCI image layouts, good ones and bad ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def entry(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def directory(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.DIRTYPE, mode=mode)


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.SYMTYPE, linkname=target)


def hard_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=tarfile.LNKTYPE, linkname=target)


def tar(entries: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


class LayoutBuilder:
    """`LayoutBuilder(dir).layer([...]).layer([...]).write()`"""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._layers: list[dict[str, Any]] = []
        self._diff_ids: list[str] = []
        (root / "blobs" / "sha256").mkdir(parents=True)

    def blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        (self.root / "blobs" / "sha256" / digest).write_bytes(data)
        return f"sha256:{digest}"

    def layer(self, entries: Sequence[tuple[tarfile.TarInfo, bytes]], *, compressed: bool = True) -> LayoutBuilder:
        plain = tar(entries)
        data = gzip.compress(plain, mtime=0) if compressed else plain
        kind = "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if compressed else "")
        self._layers.append({"mediaType": kind, "digest": self.blob(data), "size": len(data)})
        self._diff_ids.append("sha256:" + hashlib.sha256(plain).hexdigest())
        return self

    def write(self, config: dict[str, Any] | None = None, ref: str = "latest") -> Path:
        document = {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": config or {},
            "rootfs": {"type": "layers", "diff_ids": self._diff_ids},
        }
        config_data = json.dumps(document).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": self.blob(config_data),
                "size": len(config_data),
            },
            "layers": self._layers,
        }
        data = json.dumps(manifest).encode()
        descriptor = {
            "mediaType": manifest["mediaType"],
            "digest": self.blob(data),
            "size": len(data),
            "annotations": {"org.opencontainers.image.ref.name": ref},
        }
        (self.root / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        (self.root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [descriptor]}))
        return self.root


_APPLETS = """
sh ls cat echo sleep id env true false nc ip mount ps touch stat hostname wget httpd kill dd tail test mkdir grep
"""


def busybox_layout(root: Path) -> Path:
    """A tiny real image: static busybox, its applets, a passwd file."""
    busybox = Path("/bin/busybox").read_bytes()
    names = [hard_link(f"bin/{applet}", "bin/busybox") for applet in _APPLETS.split()]
    builder = LayoutBuilder(root)
    builder.layer([directory("bin"), entry("bin/busybox", busybox, mode=0o755), *names])
    passwd = b"root:x:0:0::/:/bin/sh\nguest:x:1234:1234::/:/bin/sh\n"
    builder.layer([directory("etc"), entry("etc/passwd", passwd), directory("tmp", 0o1777), directory("www")])
    return builder.write({"Env": ["PATH=/bin", "FROM_IMAGE=yes"], "Cmd": ["sh", "-c", "sleep 1000"]})
