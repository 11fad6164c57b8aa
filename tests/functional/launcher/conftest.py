"""Boxes for launchers, the node's capability cache, and the test guest if it has been built."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.launcher.sandbox import Sandbox
from virt_protos.launcher.v1 import launcher_pb2 as pb

REPO = Path(__file__).resolve().parents[3]
GUEST = REPO / ".build/guest"
PROGRAMS = ("unshare", "setpriv", "taskset", "qemu-system-x86_64")


@pytest.fixture(autouse=True, scope="session")
def _needs_root() -> None:
    if os.getuid() != 0:
        pytest.skip("needs root: the launcher runs in namespaces of its own")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


@pytest.fixture
def box() -> Iterator[Sandbox]:
    sandbox = Sandbox()
    try:
        yield sandbox
    finally:
        sandbox.close()


@pytest.fixture(scope="session")
def capability_cache(tmp_path_factory: pytest.TempPathFactory) -> list[pb.CacheFile]:
    """What the node would hand to each launcher, made by the node probe."""
    sandbox = Sandbox()
    try:
        target = sandbox.root / "cache/node"
        sandbox.start(arguments=["--node-probe", str(target)])
        assert sandbox.wait_exit(120) == 0, sandbox.log.read_text()
        return [pb.CacheFile(name=p.name, content=p.read_bytes()) for p in target.glob("capabilities/*.xml")]
    finally:
        sandbox.close()


@pytest.fixture(scope="session")
def guest_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the test guest's image: /disk/disk.img, /boot/vmlinuz, /boot/initrd.img."""
    if not (GUEST / "index.json").exists():
        pytest.skip("the test guest has not been built (make guest)")
    target = tmp_path_factory.mktemp("guest")
    target.chmod(0o755)
    manifest = _blob(json.loads((GUEST / "index.json").read_bytes())["manifests"][0]["digest"])
    for layer in json.loads(manifest.read_bytes())["layers"]:
        with tarfile.open(_blob(layer["digest"])) as archive:
            archive.extractall(target)
    return target


def _blob(digest: str) -> Path:
    return GUEST / "blobs" / digest.replace(":", "/")
