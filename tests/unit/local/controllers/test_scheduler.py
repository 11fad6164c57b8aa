"""The scheduler's loop against a small API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_local.controllers.scheduler.controller import Scheduler

PODS = "/api/v1/namespaces/default/pods"
NODE = {"metadata": {"name": "node1"}, "status": {"allocatable": {"cpu": "1", "pods": "10"}}}


class Rig:
    def __init__(self, kube: FakeKube) -> None:
        self.kube = kube
        self.bound: list[tuple[str, str]] = []
        kube.on_request = self._on_request

    def _on_request(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if method == "POST" and path.endswith("/binding"):
            name = path.split("/")[-2]
            self.bound.append((name, body["target"]["name"]))
            pod = {**self.kube.objects[f"{PODS}/{name}"]}
            pod["spec"] = {**pod.get("spec", {}), "nodeName": body["target"]["name"]}
            self.kube.put(f"{PODS}/{name}", pod)
            return 201, {"kind": "Status", "status": "Success"}, {}
        return None

    def pod(self, name: str, cpu: str = "100m", **spec: Any) -> None:
        containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
        meta = {"name": name, "namespace": "default"}
        self.kube.put(f"{PODS}/{name}", {"metadata": meta, "spec": {"containers": containers, **spec}, "status": {}})

    def condition(self, name: str) -> dict[str, Any]:
        conditions = self.kube.objects[f"{PODS}/{name}"].get("status", {}).get("conditions") or [{}]
        found: dict[str, Any] = conditions[0]
        return found

    def events(self) -> list[tuple[str, str]]:
        found = [obj for path, obj in self.kube.objects.items() if "/events/" in path]
        return [(obj["reason"], obj["message"]) for obj in found]


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        kube = stack.enter_context(fake_kube())
        made = Rig(kube)
        client = kube.client()
        pods, nodes = Informer(client, Pod), Informer(client, Node)
        recorder = EventRecorder(client, "default-scheduler")
        claims, volumes = Informer(client, PersistentVolumeClaim), Informer(client, PersistentVolume)
        classes = Informer(client, StorageClass)
        kinds = {"claims": claims, "volumes": volumes, "classes": classes}
        controller = Scheduler(client, pods, nodes, recorder, **kinds).controller()
        informers = (pods.run, nodes.run, claims.run, volumes.run, classes.run)
        stack.enter_context(running(*informers, recorder.run, controller.run))
        yield made


def test_a_pod_is_bound_and_told_once(rig: Rig) -> None:
    rig.kube.put("/api/v1/nodes/node1", NODE)
    rig.pod("p")
    eventually(lambda: rig.events() == [("Scheduled", "Successfully assigned default/p to node1")])
    assert rig.bound == [("p", "node1")]


def test_a_pod_that_fits_nowhere_waits_and_is_bound_when_a_node_comes(rig: Rig) -> None:
    rig.pod("p")
    eventually(lambda: rig.condition("p").get("message") == "no nodes available to schedule pods")
    assert rig.condition("p")["reason"] == "Unschedulable"
    eventually(lambda: ("FailedScheduling", "no nodes available to schedule pods") in rig.events())
    rig.kube.put("/api/v1/nodes/node1", NODE)
    eventually(lambda: rig.bound == [("p", "node1")])


def test_room_is_not_given_twice(rig: Rig) -> None:
    """Two Pods that fit only one at a time: the second waits for the first to end."""
    rig.kube.put("/api/v1/nodes/node1", NODE)
    rig.pod("a", cpu="700m")
    rig.pod("b", cpu="700m")
    eventually(lambda: len(rig.bound) == 1 and "Insufficient cpu" in str([rig.condition(n) for n in "ab"]))
    (first,) = (name for name, _ in rig.bound)
    rig.kube.remove(f"{PODS}/{first}")
    eventually(lambda: len(rig.bound) == 2)


def test_other_schedulers_gated_and_deleted_pods_are_left_alone(rig: Rig) -> None:
    rig.kube.put("/api/v1/nodes/node1", NODE)
    rig.pod("other", schedulerName="mine")
    rig.pod("gated", schedulingGates=[{"name": "wait"}])
    rig.pod("normal")
    eventually(lambda: rig.bound == [("normal", "node1")])
