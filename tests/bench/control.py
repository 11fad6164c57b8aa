"""What the control plane costs: a create with all webhooks, a VM start in API writes, the start-up of virtctl."""

from __future__ import annotations

import subprocess
import threading
import time
from typing import Any

from tests.bench import apiload
from tests.e2e.engine import BIN, Engine
from tests.e2e.manifests import kernel_boot

VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def big_vmi(name: str) -> dict[str, Any]:
    """A VMI of 8 KB: user data up to its limit, and annotations as tools leave them."""
    manifest = kernel_boot(name)
    manifest["metadata"]["annotations"] = {f"example.com/note-{n}": "x" * 1000 for n in range(5)}
    manifest["spec"]["volumes"] = [{"name": "data", "cloudInitNoCloud": {"userData": "#!/bin/sh\n" + "x" * 2000}}]
    manifest["spec"]["domain"]["devices"]["disks"] = [{"name": "data", "disk": {"bus": "virtio"}}]
    return manifest


def plain(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"fill": "x" * 8000}}


def create_latency(kubeconfig: str, rounds: int = 200) -> dict[str, list[float]]:
    """Dry-run creates, one of each in turn, in milliseconds."""
    client = apiload.client(kubeconfig)
    kinds = {"vmi": (apiload.VMIS, big_vmi), "plain": (apiload.CONFIG_MAPS, plain)}
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 20):
        for kind, (path, make) in kinds.items():
            body = make(f"dry-{number}")
            start = time.monotonic()
            client.request("POST", path, body, dryRun="All")
            if number >= 20:  # The first ones warm up connections.
                took[kind].append((time.monotonic() - start) * 1000)
    return took


def creates_per_second(kubeconfig: str, writers: int = 4, count: int = 100) -> float:
    def work(number: int) -> None:
        client = apiload.client(kubeconfig)
        for index in range(count):
            client.request("POST", apiload.VMIS, big_vmi(f"rate-{number}-{index}"), dryRun="All")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    return writers * count / (time.monotonic() - start)


def vm_writes(engine: Engine, name: str = "bench-vm") -> dict[str, int]:
    """API writes by resource from a VM's create to its VMI Running."""
    client = apiload.client(engine.kubeconfig)
    vmi = kernel_boot(name)
    spec = {"runStrategy": "Always", "template": {"metadata": {}, "spec": vmi["spec"]}}
    manifest = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": spec}
    before = apiload.writes(engine.kubeconfig)
    client.request("POST", VMS, manifest)
    deadline = time.monotonic() + 60
    while client.request("GET", f"{VMS}/{name}").get("status", {}).get("printableStatus") != "Running":
        if time.monotonic() > deadline:
            raise TimeoutError("the VM is not Running after 60 s")
        time.sleep(0.1)
    after = apiload.writes(engine.kubeconfig)
    engine.kubectl("delete", "vm", name, "--timeout=60s", timeout=90)
    # A lease that is renewed meanwhile is the leader's heartbeat, not part of the start.
    counted = (kind for kind in after if after[kind] > before.get(kind, 0) and kind != "leases")
    return {kind: after[kind] - before.get(kind, 0) for kind in counted}


def start_up_ms(command: list[str], rounds: int = 10) -> float:
    took = []
    for _ in range(rounds):
        start = time.monotonic()
        subprocess.run(command, capture_output=True, check=True, timeout=30)
        took.append((time.monotonic() - start) * 1000)
    return percentile(took, 0.5)


def virtctl_ms() -> tuple[float, float]:
    """`virtctl --help` and `kubectl version --client`, in milliseconds."""
    return start_up_ms([str(BIN / "virtctl"), "--help"]), start_up_ms(["kubectl", "version", "--client"])
