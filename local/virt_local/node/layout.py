"""Where the node keeps things. Pod directories have the kubelet's layout: virt-handler looks for volumes there."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from virt_core.apis.base import decode, encode
from virt_local.node.kernel import mounts_below

T = TypeVar("T")

_RM_DEADLINE_S = 300.0


@dataclass(frozen=True)
class NodeLayout:
    root: Path

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def sandboxes(self) -> Path:
        return self.root / "sandboxes"

    @property
    def runc(self) -> Path:
        return self.root / "runc"

    @property
    def ipam(self) -> Path:
        return self.root / "ipam"

    @property
    def seccomp(self) -> Path:
        """Where `Localhost` seccomp profiles are looked up."""
        return self.root / "seccomp"

    def netns(self, uid: str) -> Path:
        return self.root / "netns" / uid

    def userns(self, uid: str) -> Path:
        return self.root / "userns" / uid

    def logs(self, namespace: str, name: str, uid: str) -> Path:
        return self.root / "logs" / f"{namespace}_{name}_{uid}"

    def pod(self, uid: str) -> Path:
        return self.pods / uid

    def volume(self, uid: str, plugin: str, name: str) -> Path:
        return self.pods / uid / "volumes" / f"kubernetes.io~{plugin}" / name

    def subpaths(self, uid: str) -> Path:
        return self.pods / uid / "volume-subpaths"

    def messages(self, uid: str, container: str) -> Path:
        return self.pods / uid / "containers" / container

    def sandbox(self, uid: str) -> Path:
        return self.sandboxes / uid

    def container(self, uid: str, container_id: str) -> Path:
        return self.sandboxes / uid / "containers" / container_id

    def make(self) -> None:
        for path in (
            self.pods,
            self.sandboxes,
            self.runc,
            self.ipam,
            *(self.root / name for name in ("netns", "userns", "logs")),
        ):
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o700)


def shared_directory(path: Path) -> None:
    """A directory that containers see by a mount: every user there may enter. What lies above it stays closed."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """A reader, or we after a crash, see the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        os.fchmod(fd, mode)
        with os.fdopen(fd, "wb", closefd=False) as stream:
            stream.write(data)
    finally:
        os.close(fd)
    os.replace(temporary, path)


def save(path: Path, record: object) -> None:
    write_atomic(path, encode(record))


def load(path: Path, cls: type[T]) -> T:
    return decode(path.read_bytes(), cls)


def remove_tree(path: Path) -> None:
    """Removes a directory; a missing one is fine. Refuses to walk into a mount, which may hold somebody's data."""
    if points := mounts_below(path):
        raise OSError(f"{path} is not removed: {points[0]} is still mounted")
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        pass
    except RecursionError:
        # Directories nested deeper than Python follows: somebody's bug or somebody's joke, but it has to go.
        command = ["rm", "-rf", "--one-file-system", "--", str(path)]
        subprocess.run(command, check=True, capture_output=True, timeout=_RM_DEADLINE_S)
