"""Disks that leave: a claim of a stopped VM is exported, downloaded, broken off, gone on with, and imported again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import Space
from .engine import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

MIB = 1 << 20


def claim(name: str, size: str = "64Mi", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec},
    }


def export(name: str, kind: str, source: str, **spec: Any) -> dict[str, Any]:
    groups = {"PersistentVolumeClaim": "", "VirtualMachine": "kubevirt.io"}
    reference = {"kind": kind, "name": source, "apiGroup": groups[kind]}
    return {
        "apiVersion": "export.kubevirt.io/v1",
        "kind": "VirtualMachineExport",
        "metadata": {"name": name},
        "spec": {"source": reference, **spec},
    }


def status(space: Space, name: str) -> Any:
    return space.engine.get("-n", space.namespace, "vmexport", name).get("status", {})


def phase(space: Space, name: str, wanted: str, *, within_s: float = 90) -> Any:
    def check() -> Any:
        found = status(space, name)
        assert found.get("phase") == wanted, found
        return found

    return eventually(check, within_s=within_s, what=f"export {name} in phase {wanted}")


def content(space: Space, name: str) -> Path:
    """Where the claim's files are on this machine."""
    volume = space.engine.get("-n", space.namespace, "pvc", name)["spec"]["volumeName"]
    spec = space.engine.get("pv", volume)["spec"]
    path = Path((spec.get("hostPath") or spec.get("local") or {}).get("path", "/nonexistent"))
    if not path.exists():
        pytest.skip("the claims of this cluster are not on this machine")
    return path


def uploaded(space: Space, name: str, tmp_path: Path, size: int = 40 * MIB) -> bytes:
    """A DataVolume with noise, zeros and more noise in it."""
    data = os.urandom(size // 4) + bytes(size // 2) + os.urandom(size // 4 - 12345) + bytes(12345)
    file = tmp_path / f"{name}.img"
    file.write_bytes(data)
    space.virtctl("image-upload", "dv", name, "--image-path", str(file), "--force-bind", timeout=120)
    return data


def test_a_claim_is_served(space: Space, tmp_path: Path) -> None:
    data = uploaded(space, "disk", tmp_path)
    space.apply(export("out", "PersistentVolumeClaim", "disk"))
    found = phase(space, "out", "Ready")
    print(found)
    assert hashlib.sha256(data).hexdigest()
