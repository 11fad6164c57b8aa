"""A node's Pod runtime with real runc, conmon and CNI, and an API that is plain memory."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from unit.local.node.layouts import busybox_layout

from virt_core.apis.auth import TokenRequestSpec, TokenRequestStatus
from virt_core.apis.base import from_plain
from virt_core.apis.config import ConfigMap, Secret
from virt_core.apis.podnetworks import NetworkAttachmentDefinition
from virt_core.apis.pods import (
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodStatus,
)
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.times import rfc3339
from virt_local.node.assemble import NodeSettings, Runtime, assemble
from virt_local.node.images.store import ImageStore
from virt_local.node.server.logs import LogOptions, render_line

IMAGE = "test.internal/busybox:v1"


class FakePods:
    """PodSource and StatusSink in memory, with deletion as the API server does it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self.writes: list[tuple[str, str, float]] = []
        self.changed: Callable[[str], None] = lambda _uid: None

    def get(self, uid: str) -> Pod | None:
        with self._lock:
            return self._pods.get(uid)

    def uids(self) -> set[str]:
        with self._lock:
            return set(self._pods)

    def publish(self, pod: Pod, status: PodStatus, annotations: dict[str, str] | None = None) -> Pod:
        with self._lock:
            current = self._pods[pod.metadata.uid]
            fresh = msgspec.structs.replace(current, status=status)
            if annotations is not None:
                fresh.metadata = msgspec.structs.replace(current.metadata, annotations=annotations)
            self._pods[pod.metadata.uid] = fresh
            self.writes.append((pod.metadata.uid, status.phase, time.monotonic()))
        self.changed(pod.metadata.uid)
        return fresh

    def delete(self, pod: Pod) -> None:
        with self._lock:
            self._pods.pop(pod.metadata.uid, None)
        self.changed(pod.metadata.uid)

    def put(self, pod: Pod) -> None:
        with self._lock:
            self._pods[pod.metadata.uid] = pod
        self.changed(pod.metadata.uid)

    def request_delete(self, uid: str, grace_s: int) -> None:
        with self._lock:
            pod = self._pods[uid]
            meta = msgspec.structs.replace(
                pod.metadata,
                deletion_timestamp=rfc3339(SystemClock().now() + timedelta(seconds=grace_s)),
                deletion_grace_period_seconds=grace_s,
            )
            self._pods[uid] = msgspec.structs.replace(pod, metadata=meta)
        self.changed(uid)


class FakeObjects:
    def __init__(self) -> None:
        self.config_maps: dict[str, ConfigMap] = {}
        self.secrets: dict[str, Secret] = {}
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.networks: dict[str, NetworkAttachmentDefinition] = {}
        self.tokens: list[TokenRequestSpec] = []

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return self.config_maps.get(name)

    def secret(self, namespace: str, name: str) -> Secret | None:
        return self.secrets.get(name)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self.claims.get(name)

    def volume(self, name: str) -> PersistentVolume | None:
        return self.volumes.get(name)

    def network(self, namespace: str, name: str) -> NetworkAttachmentDefinition | None:
        return self.networks.get(f"{namespace}/{name}")

    def token(self, namespace: str, account: str, request: TokenRequestSpec) -> TokenRequestStatus:
        self.tokens.append(request)
        return TokenRequestStatus(
            token=f"token-of-{account}", expiration_timestamp=rfc3339(SystemClock().now() + timedelta(hours=1))
        )


class FakeEvents:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    def event(self, obj: Pod, type: str, reason: str, message: str) -> None:
        self.seen.append((type, reason, message))


class Node:
    """One node over several lives of its agent."""

    def __init__(self, root: Path, instance: str) -> None:
        self.root = root
        self.instance = instance
        self.pods = FakePods()
        self.objects = FakeObjects()
        self.events = FakeEvents()
        self.store = ImageStore(root / "images")
        self.store.import_layout(busybox_layout(root / "layout"), IMAGE)
        self.settings = NodeSettings(
            instance=instance,
            name="node1",
            root=root / "nodes" / "node1",
            image_store=root / "images",
            pod_cidrs=("10.199.7.0/24", "fd00:199:7::/64"),
            node_ips=("192.0.2.1",),
            cpus=Decimal(2),
            memory=1 << 30,
        )
        self.runtime: Runtime | None = None
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._stop = threading.Event()
        runtime = assemble(
            self.settings, self.pods, self.pods, objects=self.objects, events=self.events, clock=SystemClock()
        )
        self.runtime = runtime
        self.pods.changed = runtime.manager.enqueue
        bodies: dict[str, Callable[[threading.Event], Any]] = dict(runtime.manager.threads().bodies)
        bodies["pods"] = lambda stop: runtime.manager.run(stop, lambda: True)
        self._threads = [threading.Thread(target=body, args=(self._stop,), name=name) for name, body in bodies.items()]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the agent; its containers stay, as after a crash."""
        if self.runtime is None:
            return
        self._stop.set()
        self.runtime.manager.wake()
        for thread in self._threads:
            thread.join(15)
            assert not thread.is_alive(), f"thread {thread.name} did not end"
        self.runtime.close()
        self.runtime = None

    def run(self, spec: dict[str, Any], name: str = "") -> str:
        uid = str(uuid.uuid4())
        plain = {
            "metadata": {"name": name or f"pod-{uid[:8]}", "namespace": "default", "uid": uid},
            "spec": {"nodeName": "node1", "restartPolicy": "Never", **spec},
            "status": {"phase": "Pending"},
        }
        self.pods.put(from_plain(plain, Pod))
        return uid

    def status(self, uid: str) -> PodStatus:
        pod = self.pods.get(uid)
        assert pod is not None
        return pod.status

    def phase(self, uid: str) -> str:
        return self.status(uid).phase

    def wait_phase(self, uid: str, phase: str, within_s: float = 20) -> PodStatus:
        eventually(lambda: self.phase(uid) == phase, within_s, lambda: f"{self.status(uid)}")
        return self.status(uid)

    def wait_gone(self, uid: str, within_s: float = 20) -> None:
        eventually(lambda: self.pods.get(uid) is None, within_s, lambda: f"{self.status(uid)}")

    def log(self, uid: str, container: str = "c", attempt: int = 0) -> str:
        pod = self.pods.get(uid)
        assert pod is not None
        directory = self.settings.root / "logs" / f"default_{pod.metadata.name}_{uid}" / container
        with (directory / f"{attempt}.log").open("rb") as stream:
            return b"".join(render_line(line, LogOptions()) for line in stream).decode()


def shell(script: str, **fields: Any) -> dict[str, Any]:
    return {"name": "c", "image": IMAGE, "command": ["sh", "-c", script], **fields}


def eventually(check: Callable[[], bool], within_s: float = 20, explain: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + within_s
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {within_s} s: {explain()}")
        time.sleep(0.01)


def _status_of(status: PodStatus, name: str) -> ContainerStatus:
    return next(s for s in (*status.container_statuses, *status.init_container_statuses) if s.name == name)


def terminated(status: PodStatus, name: str = "c") -> ContainerStateTerminated:
    state = _status_of(status, name).state
    assert state is not None
    assert state.terminated is not None, state
    return state.terminated


def waiting(status: PodStatus, name: str = "c") -> ContainerStateWaiting:
    state = _status_of(status, name).state
    assert state is not None
    assert state.waiting is not None, state
    return state.waiting
