"""How long it takes until a guest that runs sees a disk that was asked for, and until the disk is gone again.

The guest itself looks, without a pause that counts; the request is that of a warm client. Also on its own:
`python -m tests.bench.plugging`.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from tests.bench import apiload
from tests.bench.rows import Row, show
from tests.e2e.console import Console
from tests.e2e.engine import Engine, VirtLocal, eventually
from tests.e2e.manifests import kernel_boot

ROUNDS = 5
NAME, CLAIM = "plugging", "plugged"
_SUB = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances"


def claim() -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": spec}


def wish(bus: str) -> dict[str, Any]:
    source = {"persistentVolumeClaim": {"claimName": CLAIM}}
    return {"name": CLAIM, "disk": {"disk": {"bus": bus}, "serial": CLAIM}, "volumeSource": source}


def seconds(engine: Engine, bus: str) -> tuple[list[float], list[float]]:
    """From the request to the guest's own view: it is there, it is gone."""
    client, device = apiload.client(engine.kubeconfig), {"virtio": "vda", "scsi": "sda"}[bus]
    came, went = [], []
    with Console(engine, "default", NAME) as console:
        console.prompt()
        for _ in range(ROUNDS):
            came.append(_until(client, console, f"[ -e /sys/block/{device} ]", "addvolume", wish(bus)))
            went.append(_until(client, console, f"[ ! -e /sys/block/{device} ]", "removevolume", {"name": CLAIM}))
            eventually(lambda: not _plugged(client), within_s=60, what="nothing is left of the volume")
    return came, went


def _until(client: apiload.Client, console: Console, sign: str, verb: str, body: dict[str, Any]) -> float:
    mark = len(console.seen)
    console.send(f"until {sign}; do usleep 5000; done; echo seen-$((40+2))")
    console.expect("done; echo", after=mark)
    start = time.monotonic()
    client.request("PUT", f"{_SUB}/{NAME}/{verb}", body)
    console.expect("seen-42", after=mark)
    return time.monotonic() - start


def _plugged(client: apiload.Client) -> bool:
    status = client.request("GET", f"{apiload.VMIS}/{NAME}")["status"]
    return any("hotplugVolume" in volume for volume in status.get("volumeStatus", []))


def rows(engine: Engine, aim: str = "<= 1.5 s") -> list[Row]:
    client = apiload.client(engine.kubeconfig)
    client.request("POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim())
    client.create(kernel_boot(NAME))
    client.wait_phase(NAME, "Running", 120)
    found = []
    try:
        for bus in ("scsi", "virtio"):
            came, went = seconds(engine, bus)
            words = f"{statistics.median(came):.2f} / {max(came):.2f} s"
            found.append(Row(f"addvolume to the guest sees the disk ({bus}), P50 / max", words, aim))
            found.append(Row("  removevolume to the guest sees it no more, P50", f"{statistics.median(went):.2f} s"))
    finally:
        engine.kubectl("delete", "vmi", NAME, "--timeout=60s", timeout=90)
        engine.kubectl("delete", "pvc", CLAIM, "--timeout=60s", timeout=90)
    return found


if __name__ == "__main__":
    local = VirtLocal()
    try:
        local.start()
        show(rows(local))
    finally:
        local.stop()
