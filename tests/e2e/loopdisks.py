"""Claims made by hand: block devices of this machine, which all nodes on it share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .conftest import Space
from .engine import Engine, VirtLocal
from .kubernetes import Kubernetes

MIB = 1 << 20
_CLASS = "by-hand"


@dataclass(frozen=True)
class LoopDisk:
    claim: str
    device: str


def claim(space: Space, name: str, size: str = "64Mi", **spec: Any) -> str:
    wish = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    space.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wish})
    return name


def skip_without_loop_devices(space: Space) -> None:
    engine = space.engine
    ours = isinstance(engine, VirtLocal) or (isinstance(engine, Kubernetes) and engine.cluster.owned)
    if not ours or not Path("/dev/loop-control").exists():
        pytest.skip("needs nodes on this machine, and loop devices")


@contextmanager
def loop_claim(space: Space, name: str, file: str) -> Iterator[LoopDisk]:
    """A claim whose volume is a loop device on the file. At the end the machines of the namespace go first."""
    losetup = ["losetup", "-f", "--show", file]
    device = subprocess.run(losetup, capture_output=True, text=True, check=True).stdout.strip()
    size, volume = f"{os.stat(file).st_size // MIB}Mi", f"{name}-{space.namespace}"
    try:
        space.apply(_volume(space.engine, volume, device, size))
        made = claim(space, name, size, volumeMode="Block", storageClassName=_CLASS, volumeName=volume)
        yield LoopDisk(made, device)
    finally:
        for kind in ("vm", "vmi"):
            space.kubectl("delete", kind, "--all", "--timeout=60s", timeout=90)
        space.kubectl("delete", "pvc", name, "--timeout=60s", timeout=90)
        space.kubectl("delete", "pv", volume, "--timeout=60s", timeout=90)
        subprocess.run(["losetup", "-d", device], check=True)


def _volume(engine: Engine, name: str, device: str, size: str) -> dict[str, Any]:
    nodes = [node["metadata"]["name"] for node in engine.get("nodes")["items"]]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "volumeMode": "Block",
            "storageClassName": _CLASS,
            "local": {"path": device},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
