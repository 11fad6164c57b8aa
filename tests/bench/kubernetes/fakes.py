"""Nodes and launchers that only say that they are there, so that the control plane can be measured by itself.

The API server, etcd, scheduler, virt-api and virt-controller are real. A fake node renews its lease and heartbeat; a
launcher Pod on it is said to run as soon as it is bound.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.bench import apiload
from virt_core.apis.pods import Pod
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection
from virt_core.kube.errors import NotFound

LABEL = "bench.virtpod.io/fake"
_MERGE = "application/merge-patch+json"
_CAPACITY = {"cpu": "1000", "memory": "4Ti", "pods": "1000", "ephemeral-storage": "4Ti"}
_DEVICES = {"devices.kubevirt.io/tun": "1000"}
_RENEW_S = 10.0


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def node(name: str) -> dict[str, Any]:
    # Without the label of an operating system no DaemonSet of ours comes here.
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubevirt.io/schedulable": "true"}
    labels[LABEL] = "true"
    meta = {"name": name, "labels": labels, "annotations": {"kubevirt.io/heartbeat": now()}}
    taint = {"key": LABEL, "value": "true", "effect": "NoSchedule"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": [taint]}}


def node_status() -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": "Fake", "message": "", "lastHeartbeatTime": now()}
    amounts = _CAPACITY | _DEVICES
    return {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}


def running() -> dict[str, Any]:
    """What a kubelet says of a Pod that runs."""
    kinds = ("Initialized", "ContainersReady", "Ready")
    container = {
        "name": "compute", "image": "fake", "imageID": "fake", "ready": True, "started": True, "restartCount": 0,
        "state": {"running": {"startedAt": now()}},
    }  # fmt: skip
    return {
        "status": {
            "phase": "Running",
            "podIP": "192.0.2.1",
            "podIPs": [{"ip": "192.0.2.1"}],
            "startTime": now(),
            "conditions": [{"type": kind, "status": "True"} for kind in kinds],
            "containerStatuses": [container],
        }
    }


class Fakes:
    """Fake nodes and their one kubelet."""

    def __init__(self, kubeconfig: str, nodes: int) -> None:
        self._kubeconfig = kubeconfig
        self._names = [f"fake-{number:03}" for number in range(nodes)]
        self._client = apiload.client(kubeconfig)
        self._kube = KubeClient(load_connection(kubeconfig), user_agent="bench-kubelet")
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="fake-kubelet")
        self._told: set[str] = set()

    def start(self) -> None:
        for name in self._names:
            self._client.request("POST", "/api/v1/nodes", node(name))
            self._patch(f"/api/v1/nodes/{name}/status", node_status())
            self._client.request("POST", _LEASES, lease(name))
        threading.Thread(target=self._renew, daemon=True).start()
        version = self._kube.list(Pod, label_selector="kubevirt.io=virt-launcher").resource_version
        threading.Thread(target=self._follow, args=(version,), daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        for name in self._names:
            self._client.request("DELETE", f"/api/v1/nodes/{name}")
            try:
                self._client.request("DELETE", f"{_LEASES}/{name}")
            except NotFound:
                pass  # It went with its node.
        self._pool.shutdown(cancel_futures=True)

    def _renew(self) -> None:
        while not self._stop.wait(_RENEW_S):
            for name in self._names:
                self._patch(f"{_LEASES}/{name}", {"spec": {"renewTime": now()}})
                beat = {"metadata": {"annotations": {"kubevirt.io/heartbeat": now()}}}
                self._patch(f"/api/v1/nodes/{name}", beat)

    def _follow(self, version: str) -> None:
        select = "kubevirt.io=virt-launcher"
        for event in self._kube.watch(Pod, resource_version=version, label_selector=select, timeout_s=1800):
            pod = event.object
            if self._stop.is_set():
                return
            if pod is not None and event.type != "DELETED" and pod.spec.node_name.startswith("fake-"):
                self._pool.submit(self._tell, pod)

    def _tell(self, pod: Pod) -> None:
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        try:
            if pod.metadata.deletion_timestamp:
                self._client.request("DELETE", path, {"gracePeriodSeconds": 0})
            elif pod.metadata.uid not in self._told:
                self._told.add(pod.metadata.uid)
                self._patch(f"{path}/status", running())
        except NotFound:
            pass  # Deleted in between.

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        self._client.kube.raw("PATCH", path, body=msgspec.json.encode(body), content_type=_MERGE)


_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def lease(name: str) -> dict[str, Any]:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now()}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


@contextmanager
def fakes(kubeconfig: str, nodes: int) -> Iterator[Fakes]:
    crowd = Fakes(kubeconfig, nodes)
    crowd.start()
    try:
        yield crowd
    finally:
        crowd.stop()
