"""Silent nodes, and Pods nobody will finish."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_core.apis.base import from_plain
from virt_core.apis.coordination import Lease
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.times import rfc3339
from virt_local.controllers.node_lifecycle import NodeLifecycle, wanted_taints
from virt_local.controllers.pod_gc import PodCollector

NODE = "/api/v1/nodes/node1"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as made:
        yield made


def ready_node(status: str = "True") -> dict[str, Any]:
    return {"metadata": {"name": "node1"}, "status": {"conditions": [{"type": "Ready", "status": status}]}}


def test_a_silent_node_becomes_unknown_and_tainted(kube: FakeKube) -> None:
    clock = FakeClock()
    kube.put(NODE, ready_node())
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node1"
    kube.put(lease, {"metadata": {"name": "node1", "namespace": "kube-node-lease"}, "spec": {}})
    client = kube.client()
    nodes, leases = Informer(client, Node), Informer(client, Lease, "kube-node-lease")
    recorder = EventRecorder(client, "node-controller")
    controller = NodeLifecycle(client, nodes, leases, recorder, clock)
    with running(nodes.run, leases.run, recorder.run):
        eventually(lambda: nodes.has_synced() and leases.has_synced())
        result = controller.reconcile("node1")
        assert result is not None
        assert result.requeue_after_s == pytest.approx(40.0)
        assert "taints" not in kube.objects[NODE].get("spec", {})
        clock.step(41)
        controller.reconcile("node1")
        (condition,) = kube.objects[NODE]["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("Unknown", "NodeStatusUnknown")
        renewed = {"renewTime": rfc3339(clock.now() + timedelta(seconds=1))}
        kube.put(lease, {"metadata": {"name": "node1", "namespace": "kube-node-lease"}, "spec": renewed})
        kube.put(NODE, ready_node() | {"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})
        eventually(lambda: (found := leases.get("kube-node-lease/node1")) and found.spec.renew_time)
        eventually(lambda: (node := nodes.get("node1")) and node.spec.taints)
        controller.reconcile("node1")
        assert [taint["key"] for taint in kube.objects[NODE]["spec"]["taints"]] == ["mine"]


def test_taints_follow_the_condition() -> None:
    ready, not_ready = from_plain(ready_node(), Node), from_plain(ready_node("False"), Node)
    assert wanted_taints(ready, silent=False) == []
    assert wanted_taints(not_ready, silent=False) == [("node.kubernetes.io/not-ready", "NoSchedule")]
    assert {effect for _, effect in wanted_taints(ready, silent=True)} == {"NoSchedule", "NoExecute"}


def test_pods_of_a_node_that_is_gone_are_removed_after_a_while(kube: FakeKube) -> None:
    clock = FakeClock()
    path = "/api/v1/namespaces/default/pods/p"
    kube.put(path, {"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "lost"}})
    client = kube.client()
    pods, nodes = Informer(client, Pod), Informer(client, Node)
    collector = PodCollector(client, pods, nodes, clock)
    with running(pods.run, nodes.run):
        eventually(lambda: pods.has_synced() and nodes.has_synced())
        assert collector.reconcile("default/p") is not None
        assert path in kube.objects
        clock.step(41)
        collector.reconcile("default/p")
        assert path not in kube.objects
