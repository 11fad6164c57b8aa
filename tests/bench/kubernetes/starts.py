"""How long starts take: one at a time and in bursts, a VMI beside a plain Pod on the same nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.bench import apiload
from tests.bench.control import percentile
from tests.e2e.manifests import kernel_boot
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection

#: On the nodes of our own cluster; it does nothing, and has no shell either.
PAUSE_IMAGE = "virtpod.internal/pause:v1"
PODS = "/api/v1/namespaces/default/pods"
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """What is started, and how one sees that it is up."""

    path: str
    cls: type[Any]
    make: Callable[[str], Manifest]
    is_up: Callable[[Any], bool]


@dataclass
class Burst:
    """Seconds from each object's create until it was up, and processor seconds of the whole machine in that time."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def p50(self) -> float:
        return percentile(self.seconds, 0.5)

    @property
    def p95(self) -> float:
        return percentile(self.seconds, 0.95)

    @property
    def cpu_each(self) -> float:
        return self.cpu_s / len(self.seconds)


def small_vmi(name: str) -> Manifest:
    """1 vCPU, 128 Mi, masquerade, a kernel that boots into a shell; deleted without patience."""
    manifest = kernel_boot(name)
    manifest["spec"]["terminationGracePeriodSeconds"] = 0
    return manifest


def idle_vmi(name: str) -> Manifest:
    """A machine that finds nothing to boot and halts in its firmware: the start without the guest's own work."""
    manifest = small_vmi(name)
    del manifest["spec"]["domain"]["firmware"]
    return manifest


def plain_pod(image: str) -> Callable[[str], Manifest]:
    def make(name: str) -> Manifest:
        container: Manifest = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent"}
        if image != PAUSE_IMAGE:
            container["command"] = ["python3", "-c", "import time; time.sleep(1000)"]
        spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    return make


def pod_is_up(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def vmi_is_up(vmi: VirtualMachineInstance) -> bool:
    return vmi.status.phase == "Running"


def pod_kind(image: str) -> Kind:
    return Kind(PODS, Pod, plain_pod(image), pod_is_up)


VMI = Kind(apiload.VMIS, VirtualMachineInstance, small_vmi, vmi_is_up)
IDLE_VMI = Kind(apiload.VMIS, VirtualMachineInstance, idle_vmi, vmi_is_up)


class Observer(threading.Thread):
    """Watches a kind and notes when each object was first seen up, and when it was gone."""

    def __init__(self, kubeconfig: str, kind: Kind) -> None:
        super().__init__(daemon=True)
        self._kind = kind
        self._kube = KubeClient(load_connection(kubeconfig), user_agent="bench-watch")
        self._version = self._kube.list(kind.cls, "default").resource_version
        self.up: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        self.last: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._done = threading.Event()

    def run(self) -> None:
        with self._kube.watch(self._kind.cls, "default", resource_version=self._version, timeout_s=600) as changes:
            for event in changes:
                if self._done.is_set():
                    return
                if event.object is not None:
                    self._note(event.type, event.object, time.monotonic())

    def stop(self) -> None:
        """Ends with the next change: an observer that stays would be a load on what is measured next."""
        self._done.set()

    def _note(self, change: str, seen: Any, now: float) -> None:
        name = seen.metadata.name
        with self._changed:
            if change == "DELETED":
                self.gone[name] = now
            elif self._kind.is_up(seen):
                self.up.setdefault(name, now)
            self.last[name] = seen
            self._changed.notify_all()

    def wait(self, seen: Callable[[], bool], what: str, within_s: float = 300) -> None:
        with self._changed:
            if not self._changed.wait_for(seen, timeout=within_s):
                raise TimeoutError(f"not within {within_s} s: {what}")


def cpu_seconds() -> float:
    """Processor time that the whole machine has spent so far, idling left out."""
    with open("/proc/stat") as stat:
        fields = [int(value) for value in stat.readline().split()[1:]]
    busy = sum(fields[:8]) - fields[3] - fields[4]
    return busy / 100


def burst(kubeconfig: str, kind: Kind, names: list[str], *, keep: bool = False) -> tuple[Burst, Observer]:
    """Creates all of them at once; gives when each was up. Unless `keep` they are deleted, and gone, at the end."""
    observer = Observer(kubeconfig, kind)
    observer.start()
    clients = [apiload.client(kubeconfig) for _ in names]
    created: dict[str, float] = {}

    def create(client: apiload.Client, name: str) -> None:
        body = kind.make(name)
        created[name] = time.monotonic()
        client.request("POST", kind.path, body)

    before = cpu_seconds()
    threads = [threading.Thread(target=create, args=pair) for pair in zip(clients, names, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    observer.wait(lambda: observer.up.keys() >= set(names), f"{len(names)} of {kind.path} up")
    result = Burst([observer.up[name] - created[name] for name in names], cpu_seconds() - before)
    if not keep:
        delete(kubeconfig, kind, names, observer)
    return result, observer


def delete(kubeconfig: str, kind: Kind, names: list[str], observer: Observer) -> list[float]:
    """Seconds from each delete until the object was gone."""
    client = apiload.client(kubeconfig)
    asked = {}
    for name in names:
        asked[name] = time.monotonic()
        client.request("DELETE", f"{kind.path}/{name}", {"gracePeriodSeconds": 0} if kind.path == PODS else None)
    observer.wait(lambda: observer.gone.keys() >= set(names), f"{len(names)} of {kind.path} gone")
    observer.stop()
    return [observer.gone[name] - asked[name] for name in names]
