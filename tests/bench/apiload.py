"""Load on virt-local's API, and a small warm client for the bench: no process start in a measured time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from tests.framework.apimetrics import granted_writes
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection

VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@dataclass(frozen=True)
class Load:
    writes_per_s: float
    p50_ms: float
    p99_ms: float


class Client:
    """Plain dictionaries over the product's own client."""

    def __init__(self, kubeconfig: str) -> None:
        self.kube = KubeClient(load_connection(kubeconfig), user_agent="bench")

    def request(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        data = msgspec.json.encode(body) if body is not None else None
        return msgspec.json.decode(self.kube.raw(method, path, query=query or None, body=data) or b"null")

    def create(self, manifest: dict[str, Any]) -> Any:
        return self.request("POST", VMIS, manifest)

    def wait_phase(self, name: str, phase: str, timeout_s: float = 60) -> Any:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            vmi = self.request("GET", f"{VMIS}/{name}")
            if vmi.get("status", {}).get("phase") == phase:
                return vmi
            time.sleep(0.01)
        raise TimeoutError(f"{name} is not {phase} after {timeout_s} s: {vmi.get('status')}")


def client(kubeconfig: str) -> Client:
    return Client(kubeconfig)


def seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def writes(kubeconfig: str) -> dict[str, int]:
    """Writes by resource, from the API server's own counters."""
    return granted_writes(Client(kubeconfig).kube.raw("GET", "/metrics").decode())


def config_map(name: str, stamp: float) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"sent": repr(stamp), "fill": "x" * 1024},
    }


class Watcher(threading.Thread):
    """Notes how long each write took from the client's send to this watcher."""

    def __init__(self, kubeconfig: str) -> None:
        super().__init__(daemon=True)
        self.delays: list[float] = []
        self._kube = KubeClient(load_connection(kubeconfig), user_agent="bench-watch")
        listing = msgspec.json.decode(self._kube.raw("GET", CONFIG_MAPS))
        self._version = listing["metadata"]["resourceVersion"]
        self.ready = threading.Event()

    def run(self) -> None:
        from virt_core.apis.config import ConfigMap

        self.ready.set()
        for event in self._kube.watch(ConfigMap, "default", resource_version=self._version, timeout_s=60):
            now = time.monotonic()
            sent = (event.object.data or {}).get("sent") if event.type in {"ADDED", "MODIFIED"} else None
            if sent:
                self.delays.append(now - float(sent))
            if event.type == "ADDED" and event.object.metadata.name == "bench-end":
                return


def _writer(kubeconfig: str, number: int, count: int) -> None:
    own = Client(kubeconfig)
    for index in range(count):
        own.request("POST", CONFIG_MAPS, config_map(f"bench-{number}-{index}", time.monotonic()))


def run(kubeconfig: str, writers: int = 4, count: int = 400) -> Load:
    watcher = Watcher(kubeconfig)
    watcher.start()
    watcher.ready.wait(5)
    threads = [threading.Thread(target=_writer, args=(kubeconfig, number, count)) for number in range(writers)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    took = time.monotonic() - start
    own = Client(kubeconfig)
    own.request("POST", CONFIG_MAPS, config_map("bench-end", time.monotonic()))
    watcher.join(timeout=20)
    own.request("DELETE", CONFIG_MAPS)
    delays = sorted(watcher.delays)
    return Load(writers * count / took, delays[len(delays) // 2] * 1000, delays[int(len(delays) * 0.99)] * 1000)
