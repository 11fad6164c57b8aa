"""What a VM costs beside its guest: memory used and booked, API writes, an idle minute, what the services hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import apiload
from tests.bench.floor import pss_kib
from tests.bench.rows import Row
from tests.e2e.engine import process_table
from tests.e2e.kubernetes import Kubernetes
from tests.framework.apimetrics import spent
from virt_core.apis.quantity import parse_bytes

MIB = 1024
#: Written by Kubernetes itself, whatever runs on it.
OF_KUBERNETES = {"leases", "nodes", "tokenreviews", "subjectaccessreviews", "serviceaccounts", "endpointslices"}


def pod_pss(pod_uid: str) -> dict[str, int]:
    """PSS in KiB by program of everything in a Pod's control group."""
    sizes: dict[str, int] = {}
    marks = (pod_uid, pod_uid.replace("-", "_"))
    for pid, args in process_table():
        try:
            if any(mark in Path(f"/proc/{pid}/cgroup").read_text() for mark in marks):
                name = "launcher" if any("virt-launcher" in a for a in args[:3]) else Path(args[0]).name
                sizes[name] = sizes.get(name, 0) + pss_kib(pid)
        except OSError:
            continue  # It ended.
    return sizes


def beside_qemu(vmis: list[Any]) -> float:
    """MiB for each VM that are not QEMU's: launcher, libvirt, DHCP server, the sandbox's pause."""
    total = 0
    for vmi in vmis:
        sizes = pod_pss(next(iter(vmi["status"]["activePods"])))
        total += sum(size for name, size in sizes.items() if not name.startswith("qemu-system"))
    return total / len(vmis) / MIB


def booked_row(engine: Kubernetes, vmi: dict[str, Any]) -> Row:
    pod = next(iter(vmi["status"]["activePods"]))
    pods = engine.get("pods", "-l", f"kubevirt.io/created-by={vmi['metadata']['uid']}")["items"]
    asked = next(p for p in pods if p["metadata"]["uid"] == pod)["spec"]["containers"][0]["resources"]["requests"]
    extra = parse_bytes(asked["memory"]) - parse_bytes(vmi["spec"]["domain"]["memory"]["guest"])
    used = sum(pod_pss(pod).values())
    value = f"{extra >> 20} MiB (in use with the guest's: {used / MIB:.0f} MiB)"
    return Row("memory booked beyond the guest's", value, "use + a margin (KubeVirt 288 MiB + 35 MB)")


def settle(engine: Kubernetes, quiet_s: float = 3, within_s: float = 60) -> None:
    """Waits until nobody writes any more: the Events of the last deletion are not the next start's."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        before = apiload.writes(engine.kubeconfig)
        time.sleep(quiet_s)
        if not spent(before, apiload.writes(engine.kubeconfig)).keys() - OF_KUBERNETES:
            return
    print(f"  somebody else still writes after {within_s:.0f} s: the counts hold theirs too", flush=True)


def writes_of(engine: Kubernetes, act: Callable[[], object]) -> dict[str, int]:
    """API writes by resource while `act` runs, what Kubernetes writes for itself left out."""
    settle(engine)
    before = apiload.writes(engine.kubeconfig)
    act()
    found = spent(before, apiload.writes(engine.kubeconfig))
    return {kind: count for kind, count in found.items() if kind not in OF_KUBERNETES}


def in_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())) or "none"


def idle_row(engine: Kubernetes, seconds: int = 60) -> Row:
    settle(engine)
    before = apiload.writes(engine.kubeconfig)
    time.sleep(seconds)
    counts = spent(before, apiload.writes(engine.kubeconfig))
    ours = {kind: count for kind, count in counts.items() if kind not in OF_KUBERNETES}
    rest = in_words({kind: count for kind, count in counts.items() if kind in OF_KUBERNETES})
    return Row(
        f"API writes of an idle system in {seconds} s", f"{in_words(ours)} (all: {rest})", "leases (KubeVirt 184)"
    )


def service_rows(engine: Kubernetes) -> list[Row]:
    rows = []
    for name in ("virt-api", "virt-controller", "virt-handler"):
        sizes = [_rss_kib(pid) / MIB for pid in engine.component_pids(name)]
        value = " / ".join(f"{size:.0f}" for size in sorted(sizes, reverse=True))
        rows.append(Row(f"RSS of {name}, each replica", f"{value} MiB", "<= 80 MiB"))
    return rows


def _rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
