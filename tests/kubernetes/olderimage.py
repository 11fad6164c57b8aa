"""The launcher of the last release as an image: today's libvirt and QEMU, that release's program in a layer more.

Its program and its contracts are taken from the commit that tests/golden/contracts/RELEASE names.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "contracts"
#: Each a source root with one package.
PACKAGES = ("launcher/virt_launcher", "core/virt_core", "protos/virt_protos")
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_NAME = "org.opencontainers.image.ref.name"
#: In a layer: of the layers below, nothing of this directory shows.
_OPAQUE = ".wh..wh..opq"


class NoHistoryError(LookupError):
    """The checkout does not hold the commit of the last release."""


def release() -> str:
    return (GOLDEN / "RELEASE").read_text().strip()


def sources(commit: str) -> dict[str, bytes]:
    """The packages of a launcher at that commit, by path below Python's packages."""
    done = subprocess.run(["git", "archive", commit, *PACKAGES], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        raise NoHistoryError(f"no commit {commit} here: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {name.split("/", 1)[1]: stream.read() for name, stream in files.items() if stream is not None}


class Layout:
    """An OCI archive, unpacked."""

    def __init__(self, archive: Path, out: Path) -> None:
        self.out = out
        with tarfile.open(archive) as tar:
            tar.extractall(out)
        self.index: dict[str, Any] = json.loads((out / "index.json").read_bytes())

    def read(self, descriptor: dict[str, Any]) -> Any:
        return json.loads(self._blob(descriptor["digest"]).read_bytes())

    def write(self, content: bytes, media_type: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._blob(digest).write_bytes(content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def _blob(self, digest: str) -> Path:
        return self.out / "blobs" / digest.replace(":", "/")

    def packages(self, layers: list[dict[str, Any]]) -> str:
        """Where in the image Python's packages are."""
        for layer in reversed(layers):
            with tarfile.open(self._blob(layer["digest"])) as tar:
                for name in tar.getnames():
                    if name.endswith("/virt_protos/__init__.py"):
                        return name.removesuffix("virt_protos/__init__.py").lstrip("./")
        raise AssertionError("the image has no virt_protos")


def make(archive: Path, name: str, out: Path) -> Path:
    """An OCI layout directory with the older launcher under that name."""
    files = sources(release())
    layout = Layout(archive, out)
    manifest = layout.read(layout.index["manifests"][0])
    config = layout.read(manifest["config"])
    plain = _tar(layout.packages(manifest["layers"]), files)
    config["rootfs"]["diff_ids"].append(f"sha256:{hashlib.sha256(plain).hexdigest()}")
    config.setdefault("history", []).append({"created_by": "the program of the last release"})
    manifest["layers"].append(layout.write(gzip.compress(plain, mtime=0), _LAYER))
    manifest["config"] = layout.write(json.dumps(config).encode(), manifest["config"]["mediaType"])
    entry = layout.write(json.dumps(manifest).encode(), manifest["mediaType"])
    layout.index["manifests"] = [entry | {"annotations": {_NAME: name}}]
    (out / "index.json").write_text(json.dumps(layout.index))
    return out


def _tar(packages: str, files: dict[str, bytes]) -> bytes:
    tops = {path.split("/", 1)[0] for path in files}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for top in sorted(tops):
            directory = tarfile.TarInfo(packages + top)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
            tar.addfile(tarfile.TarInfo(f"{packages}{top}/{_OPAQUE}"))
        for path, content in sorted(files.items()):
            info = tarfile.TarInfo(packages + path)
            info.size, info.mode = len(content), 0o644
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
