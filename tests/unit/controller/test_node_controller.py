"""Silent nodes are withdrawn, others are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.vmis import plain_pod, plain_vmi
from framework.waiting import eventually, running

from virt_controller.node.controller import (
    HEARTBEAT_LIMIT_S,
    NODE_INDEX,
    NodeController,
    heartbeat_age_s,
    node_indexer,
)
from virt_controller.vmi.controller import OWNER_INDEX, owner_indexer
from virt_core.apis import names
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Result
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.times import rfc3339

NODE = "/api/v1/nodes/node1"
VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake


def node(clock: FakeClock, age_s: float, schedulable: str = "true") -> dict[str, object]:
    beat = rfc3339(clock.now() - timedelta(seconds=age_s))
    return {
        "metadata": {
            "labels": {names.LABEL_SCHEDULABLE: schedulable},
            "annotations": {names.ANNOTATION_HEARTBEAT: beat},
        }
    }


def empty(client: KubeClient) -> tuple[Informer[VirtualMachineInstance], Informer[Pod], list[Any]]:
    vmis = Informer(client, VirtualMachineInstance, indexers={NODE_INDEX: node_indexer})
    pods = Informer(client, Pod, indexers={OWNER_INDEX: owner_indexer})
    return vmis, pods, [vmis.run, pods.run]


def test_age_of_a_missing_or_broken_heartbeat_is_endless() -> None:
    now = FakeClock().now()
    assert heartbeat_age_s(Node(), now) == float("inf")
    broken = Node(metadata=ObjectMeta(annotations={names.ANNOTATION_HEARTBEAT: "yesterday"}))
    assert heartbeat_age_s(broken, now) == float("inf")


@pytest.mark.parametrize(("age_s", "expected"), [(10.0, "true"), (HEARTBEAT_LIMIT_S + 1, "false")])
def test_label_follows_the_age(kube: FakeKube, age_s: float, expected: str) -> None:
    clock = FakeClock()
    kube.put(NODE, node(clock, age_s))
    client = kube.client()
    nodes = Informer(client, Node)
    recorder = EventRecorder(client, "virt-controller")
    vmis, pods, informers = empty(client)
    controller = NodeController(
        client, queue=WorkQueue(clock), nodes=nodes, vmis=vmis, pods=pods, recorder=recorder, clock=clock
    )
    with running(nodes.run, *informers):
        eventually(nodes.has_synced)
        result = controller.reconcile("node1")
    assert kube.objects[NODE]["metadata"]["labels"][names.LABEL_SCHEDULABLE] == expected
    assert (result is None) == (expected == "false")
    assert result is None or (isinstance(result, Result) and result.requeue_after_s == 60.0)


def test_withdrawn_node_is_not_written_again(kube: FakeKube) -> None:
    clock = FakeClock()
    kube.put(NODE, node(clock, 1000, "false"))
    client = kube.client()
    nodes = Informer(client, Node)
    vmis, pods, informers = empty(client)
    controller = NodeController(
        client,
        queue=WorkQueue(clock),
        nodes=nodes,
        vmis=vmis,
        pods=pods,
        recorder=EventRecorder(client, "c"),
        clock=clock,
    )
    with running(nodes.run, *informers):
        eventually(nodes.has_synced)
        assert controller.reconcile("node1") is None
    assert not kube.methods("PATCH")


@pytest.mark.parametrize(
    ("node_there", "pod_state", "expected"),
    [
        (True, None, "Failed"),
        (False, None, "Failed"),
        (True, {"terminated": {"exitCode": 1}}, "Failed"),
        (True, {"running": {}}, "Running"),
    ],
)
def test_vmis_of_a_dead_node_are_over_when_their_pods_are(
    kube: FakeKube, node_there: bool, pod_state: dict[str, Any] | None, expected: str
) -> None:
    clock = FakeClock()
    if node_there:
        kube.put(NODE, node(clock, 1000, "true"))
    kube.put(VMI, plain_vmi(phase="Running", status={"nodeName": "node1"}))
    if pod_state is not None:
        kube.put("/api/v1/namespaces/default/pods/virt-launcher-vm-abcde", plain_pod(phase="Running", state=pod_state))
    client = kube.client()
    nodes = Informer(client, Node)
    vmis, pods, informers = empty(client)
    controller = NodeController(
        client,
        queue=WorkQueue(clock),
        nodes=nodes,
        vmis=vmis,
        pods=pods,
        recorder=EventRecorder(client, "c"),
        clock=clock,
    )
    with running(nodes.run, *informers):
        eventually(lambda: nodes.has_synced() and vmis.has_synced() and pods.has_synced())
        assert controller.reconcile("node1") == Result(60.0)
    status = kube.objects[VMI]["status"]
    assert status["phase"] == expected
    assert status.get("reason", "") == ("NodeUnresponsive" if expected == "Failed" else "")
