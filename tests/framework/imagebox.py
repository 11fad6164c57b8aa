"""An image that `make images` built, unpacked, and its programs run in it the way a Pod would: read-only, unprivileged.

runc does the running, with namespaces of its own, no capability and nothing writable but /tmp and what is given.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

IMAGES = Path(__file__).parents[2] / ".build/images"
DEADLINE_S = 120


@dataclass(frozen=True, slots=True)
class BuiltImage:
    name: str
    digest: str
    config: dict[str, Any]
    #: Digest and compressed size of each layer, the lowest first.
    layers: tuple[tuple[str, int], ...]
    root: Path

    @property
    def compressed(self) -> int:
        return sum(size for _, size in self.layers)

    @property
    def unpacked(self) -> int:
        return sum(path.lstat().st_size for path in self.files() if not path.is_symlink())

    def files(self) -> Iterable[Path]:
        return (path for path in self.root.rglob("*") if path.is_symlink() or path.is_file())

    @property
    def user(self) -> tuple[int, int]:
        user, _, group = self.config["config"]["User"].partition(":")
        return int(user), int(group)


def unpack(archive: Path, target: Path) -> BuiltImage:
    target.mkdir()
    with tarfile.open(archive) as tar:
        entry = _json(tar, "index.json")["manifests"][0]
        manifest = _json(tar, _blob(entry["digest"]))
        for layer in manifest["layers"]:
            packed = cast("IO[bytes]", tar.extractfile(_blob(layer["digest"]))).read()
            command = ["tar", "-xzp", "--numeric-owner", "-C", str(target)]
            subprocess.run(command, input=packed, timeout=DEADLINE_S, check=True)
        config = _json(tar, _blob(manifest["config"]["digest"]))
    layers = tuple((layer["digest"], layer["size"]) for layer in manifest["layers"])
    return BuiltImage(archive.stem, entry["digest"], config, layers, target)


def run(
    image: BuiltImage, *command: str, folder: Path, writable: Path | None = None, user: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end; `writable` is seen as /out in there."""
    bundle = folder / f"bundle-{uuid.uuid4().hex[:8]}"
    bundle.mkdir(parents=True)
    (bundle / "config.json").write_text(json.dumps(_bundle(image, command, writable, user)))
    name = f"image-{bundle.name}"
    base = ["runc", "--root", str(folder / "runc")]
    try:
        return subprocess.run(
            [*base, "run", "--bundle", str(bundle), name],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    finally:
        subprocess.run([*base, "delete", "--force", name], capture_output=True, timeout=DEADLINE_S, check=False)


def _bundle(image: BuiltImage, command: tuple[str, ...], writable: Path | None, user: int | None) -> dict[str, Any]:
    uid, gid = image.user if user is None else (user, user)
    tmpfs = {"type": "tmpfs", "source": "tmpfs"}
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", **tmpfs, "options": ["nosuid", "mode=755"]},
        {"destination": "/dev/shm", **tmpfs, "options": ["mode=1777"]},
        {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"]},
        {"destination": "/tmp", **tmpfs, "options": ["mode=1777"]},
    ]
    if writable is not None:
        mounts.append({"destination": "/out", "type": "bind", "source": str(writable), "options": ["bind", "rw"]})
    process = {
        "user": {"uid": uid, "gid": gid}, "args": list(command), "cwd": "/", "env": image.config["config"]["Env"],
        "capabilities": {}, "noNewPrivileges": True,
    }  # fmt: skip
    return {
        "ociVersion": "1.0.2", "process": process, "root": {"path": str(image.root), "readonly": True},
        "mounts": mounts, "hostname": "box",
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]},
    }  # fmt: skip


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _json(tar: tarfile.TarFile, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.load(cast("IO[bytes]", tar.extractfile(name)))
    return value
