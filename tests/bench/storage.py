"""What the benches of storage share: a claim with a disk of known bytes, and objects that are waited for."""

from __future__ import annotations

import random
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.apiload import Client
from tests.e2e.engine import Engine, eventually

ROUNDS = 3
MIB = 1 << 20
_NAMESPACE = "namespaces/default"
CLAIMS = f"/api/v1/{_NAMESPACE}/persistentvolumeclaims"
VMS = f"/apis/kubevirt.io/v1/{_NAMESPACE}/virtualmachines"
COPIES = f"/apis/snapshot.kubevirt.io/v1beta1/{_NAMESPACE}"
EXPORTS = f"/apis/export.kubevirt.io/v1/{_NAMESPACE}/virtualmachineexports"


def filled_claim(client: Client, name: str, size: int) -> Path:
    """The disk of a new claim: every second MiB is noise, the others are holes."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": str(size + 64 * MIB)}}}
    meta = {"name": name, "annotations": {"cdi.kubevirt.io/storage.contentType": "kubevirt"}}
    client.request(
        "POST", CLAIMS, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
    )
    disk = place(client, name) / "disk.img"
    rng = random.Random(1)
    with disk.open("wb") as file:
        file.truncate(size)
        for at in range(0, size, 2 * MIB):
            file.seek(at)
            file.write(rng.randbytes(MIB))
    subprocess.run(["sync", str(disk)], check=True, timeout=120)
    return disk


def place(client: Client, name: str) -> Path:
    """Where a claim of virt-local has its files."""
    claim = until(client, f"{CLAIMS}/{name}", lambda found: found.get("status", {}).get("phase") == "Bound")
    volume = client.request("GET", f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")["spec"]
    return Path((volume.get("hostPath") or volume["local"])["path"])


def until(client: Client, path: str, check: Callable[[Any], bool], within_s: float = 120.0) -> Any:
    """The object as soon as it is as wanted; without a pause that counts."""
    deadline = time.monotonic() + within_s
    while not check(found := client.request("GET", path)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} after {within_s} s: {found.get('status')}")
        time.sleep(0.01)
    return found


def gone(engine: Engine, kind: str, name: str) -> None:
    engine.kubectl("delete", kind, name, "--ignore-not-found", "--timeout=60s", timeout=90)
    eventually(
        lambda: not engine.kubectl("get", kind, name, "--ignore-not-found"), within_s=60, what=f"no {kind} {name}"
    )


def seconds_of(command: list[str]) -> float:
    start = time.monotonic()
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - start


def same(wanted: Path, found: Path) -> None:
    """A fast copy of something else would be no copy."""
    subprocess.run(["cmp", "--quiet", str(wanted), str(found)], check=True, timeout=120)


median = statistics.median
