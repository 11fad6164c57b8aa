"""Silent nodes are withdrawn, others are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_controller.node.controller import HEARTBEAT_LIMIT_S, NodeController, heartbeat_age_s
from virt_core.apis import names
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Node
from virt_core.kube.controller import Result
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock, rfc3339

NODE = "/api/v1/nodes/node1"


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
    controller = NodeController(client, queue=WorkQueue(clock), nodes=nodes, recorder=recorder, clock=clock)
    with running(nodes.run):
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
    controller = NodeController(
        client, queue=WorkQueue(clock), nodes=nodes, recorder=EventRecorder(client, "c"), clock=clock
    )
    with running(nodes.run):
        eventually(nodes.has_synced)
        assert controller.reconcile("node1") is None
    assert not kube.methods("PATCH")
