"""The control plane alone, with faked nodes and launchers: how fast VMIs reach their node, and what each costs."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from tests.bench import apiload
from tests.bench.kubernetes.fakes import LABEL, fakes
from tests.bench.kubernetes.starts import Kind, Observer, small_vmi
from tests.bench.rows import Row
from tests.e2e.kubernetes import Kubernetes
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import NotFound

_WRITERS = 8
_NODES = 20


@dataclass(frozen=True)
class Step:
    """What a number of VMIs at once showed."""

    count: int
    scheduling_per_s: float
    scheduled_per_s: float
    controller_kib: int


def fake_vmi(name: str) -> dict[str, Any]:
    manifest = small_vmi(name)
    manifest["spec"]["nodeSelector"] = {LABEL: "true"}
    manifest["spec"]["tolerations"] = [{"key": LABEL, "operator": "Exists"}]
    return manifest


SCHEDULED = Kind(apiload.VMIS, VirtualMachineInstance, fake_vmi, lambda vmi: vmi.status.phase == "Scheduled")
SCHEDULING = Kind(
    apiload.VMIS, VirtualMachineInstance, fake_vmi, lambda vmi: vmi.status.phase in ("Scheduling", "Scheduled")
)


def rss_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def controller_kib(engine: Kubernetes) -> int:
    """Of the leader: the one whose memory grows is the one that works."""
    return max(rss_kib(pid) for pid in engine.component_pids("virt-controller"))


def create_all(kubeconfig: str, names: list[str]) -> None:
    def work(share: list[str]) -> None:
        client = apiload.client(kubeconfig)
        for name in share:
            client.request("POST", apiload.VMIS, fake_vmi(name))

    threads = [threading.Thread(target=work, args=(names[start::_WRITERS],)) for start in range(_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=600)


def step(engine: Kubernetes, count: int, offset: int) -> Step:
    """Adds VMIs until there are `count`."""
    names = [f"many-{number:05}" for number in range(offset, count)]
    scheduled, scheduling = (Observer(engine.kubeconfig, kind) for kind in (SCHEDULED, SCHEDULING))
    scheduled.start()
    scheduling.start()
    begun = time.monotonic()
    create_all(engine.kubeconfig, names)
    for observer in (scheduling, scheduled):
        observer.wait(lambda o=observer: len(o.up) >= len(names), f"{len(names)} VMIs", 900)  # type: ignore[misc]
        observer.stop()
    rates = [len(names) / (max(o.up.values()) - begun) for o in (scheduling, scheduled)]
    return Step(count, rates[0], rates[1], controller_kib(engine))


def forget(engine: Kubernetes, count: int) -> None:
    client = apiload.client(engine.kubeconfig)
    for number in range(count):
        try:
            client.request("DELETE", f"{apiload.VMIS}/many-{number:05}")
        except NotFound:
            continue


def wait_until_gone(engine: Kubernetes, within_s: float = 900) -> None:
    client = apiload.client(engine.kubeconfig)
    deadline = time.monotonic() + within_s
    while client.request("GET", apiload.VMIS, limit="1")["items"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"VMIs are left after {within_s} s")
        time.sleep(1)


def rows(engine: Kubernetes, counts: tuple[int, ...]) -> list[Row]:
    empty = controller_kib(engine)
    steps: list[Step] = []
    with fakes(engine.kubeconfig, _NODES):
        for count in counts:
            steps.append(step(engine, count, steps[-1].count if steps else 0))
            print(f"  {steps[-1]}", flush=True)
        forget(engine, counts[-1])
        wait_until_gone(engine)
    return [row for each in steps for row in _rows(each, empty)]


def _rows(each: Step, empty: int) -> list[Row]:
    per_vmi = (each.controller_kib - empty) / each.count
    return [
        Row(f"{each.count} VMIs: to Scheduling", f"{each.scheduling_per_s:.0f} /s", ">= 25 /s (KubeVirt 17)"),
        Row(f"{each.count} VMIs: to Scheduled", f"{each.scheduled_per_s:.0f} /s"),
        Row(f"{each.count} VMIs: virt-controller's memory for each", f"{per_vmi:.0f} KiB", "<= 40 KB, flat"),
    ]
