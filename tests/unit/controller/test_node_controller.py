"""Silent nodes are withdrawn, others are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.vmis import plain_pod, plain_vmi
from framework.waiting import eventually, running

from virt_controller.node.controller import NODE_INDEX, NodeController, heartbeat_age_s, node_indexer
from virt_controller.node.listening import HEARTBEAT_LIMIT_S, RECHECK_S
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


@dataclass
class Watched:
    """A controller over live copies of what the fake API holds, with its clock."""

    controller: NodeController
    clock: FakeClock
    nodes: Informer[Node]

    def look(self, after_s: float = 0.0) -> Result | None:
        self.clock.step(after_s)
        return self.controller.reconcile("node1")

    def look_until_judged(self) -> Result | None:
        """Looks every minute, for as long as a silent node is given, and once more when that is over."""
        for _ in range(int(HEARTBEAT_LIMIT_S // RECHECK_S)):
            assert self.look() == Result(RECHECK_S)
            self.clock.step(RECHECK_S)
        return self.look()

    def sees(self, beat: str) -> None:
        """Waits until the copy has this heartbeat."""
        eventually(
            lambda: (
                (found := self.nodes.get("node1"))
                and found.metadata.annotations.get(names.ANNOTATION_HEARTBEAT) == beat
            )
        )


@contextmanager
def watched(kube: FakeKube, clock: FakeClock) -> Iterator[Watched]:
    client = kube.client()
    nodes = Informer(client, Node)
    vmis, pods, informers = empty(client)
    recorder = EventRecorder(client, "virt-controller")
    controller = NodeController(
        client, queue=WorkQueue(clock), nodes=nodes, vmis=vmis, pods=pods, recorder=recorder, clock=clock
    )
    with running(nodes.run, *informers):
        eventually(lambda: nodes.has_synced() and vmis.has_synced() and pods.has_synced())
        yield Watched(controller, clock, nodes)


def beat(kube: FakeKube, it: Watched) -> None:
    """virt-handler is heard, and the controller's copy knows it."""
    now = rfc3339(it.clock.now())
    kube.put(NODE, node(it.clock, 0.0))
    it.sees(now)


def label(kube: FakeKube) -> str:
    return str(kube.objects[NODE]["metadata"]["labels"][names.LABEL_SCHEDULABLE])


def empty(client: KubeClient) -> tuple[Informer[VirtualMachineInstance], Informer[Pod], list[Any]]:
    vmis = Informer(client, VirtualMachineInstance, indexers={NODE_INDEX: node_indexer})
    pods = Informer(client, Pod, indexers={OWNER_INDEX: owner_indexer})
    return vmis, pods, [vmis.run, pods.run]


def test_age_of_a_missing_or_broken_heartbeat_is_endless() -> None:
    now = FakeClock().now()
    assert heartbeat_age_s(Node(), now) == float("inf")
    broken = Node(metadata=ObjectMeta(annotations={names.ANNOTATION_HEARTBEAT: "yesterday"}))
    assert heartbeat_age_s(broken, now) == float("inf")


def test_a_node_that_beats_is_left_alone(kube: FakeKube) -> None:
    clock = FakeClock()
    kube.put(NODE, node(clock, 10.0))
    with watched(kube, clock) as it:
        assert it.look() == Result(RECHECK_S)
    assert label(kube) == "true"


def test_a_silent_node_has_the_whole_time_after_our_start(kube: FakeKube) -> None:
    """The machine was off, or we were: nobody could hear it."""
    clock = FakeClock()
    kube.put(NODE, node(clock, 100_000.0))
    with watched(kube, clock) as it:
        for _ in range(int(HEARTBEAT_LIMIT_S // RECHECK_S)):
            assert it.look() == Result(RECHECK_S)
            clock.step(RECHECK_S - 1.0)
        assert it.look() == Result(6.0)
        assert not kube.methods("PATCH")
        assert it.look(6.0) is None
    assert label(kube) == "false"


def test_a_node_that_is_heard_after_our_start_is_not_touched(kube: FakeKube) -> None:
    clock = FakeClock()
    kube.put(NODE, node(clock, 100_000.0))
    with watched(kube, clock) as it:
        it.look()
        beat(kube, it)
        for _ in range(4):
            assert it.look(60.0) == Result(RECHECK_S)
        beat(kube, it)
        assert it.look(60.0) == Result(RECHECK_S)
    assert not kube.methods("PATCH")


def test_a_node_that_falls_silent_is_withdrawn(kube: FakeKube) -> None:
    clock = FakeClock()
    kube.put(NODE, node(clock, 0.0))
    with watched(kube, clock) as it:
        assert it.look_until_judged() is None
    assert label(kube) == "false"


def test_a_node_has_the_whole_time_again_after_a_pause(kube: FakeKube) -> None:
    """All of us stood still, as on a laptop that slept: the silence says nothing."""
    clock = FakeClock()
    kube.put(NODE, node(clock, 0.0))
    with watched(kube, clock) as it:
        assert it.look() == Result(RECHECK_S)
        assert it.look(8 * 3600.0) == Result(RECHECK_S)
        assert label(kube) == "true"
        assert it.look_until_judged() is None
    assert label(kube) == "false"


def test_withdrawn_node_is_not_written_again(kube: FakeKube) -> None:
    clock = FakeClock()
    kube.put(NODE, node(clock, 1000, "false"))
    with watched(kube, clock) as it:
        assert it.look_until_judged() is None
    assert not kube.methods("PATCH")


@pytest.mark.parametrize(
    ("pod_state", "expected"),
    [(None, "Failed"), ({"terminated": {"exitCode": 1}}, "Failed"), ({"running": {}}, "Running")],
)
def test_vmis_of_a_dead_node_are_over_when_their_pods_are(
    kube: FakeKube, pod_state: dict[str, Any] | None, expected: str
) -> None:
    clock = FakeClock()
    kube.put(NODE, node(clock, 1000, "true"))
    kube.put(VMI, plain_vmi(phase="Running", status={"nodeName": "node1"}))
    if pod_state is not None:
        kube.put("/api/v1/namespaces/default/pods/virt-launcher-vm-abcde", plain_pod(phase="Running", state=pod_state))
    with watched(kube, clock) as it:
        assert it.look() == Result(RECHECK_S)
        assert kube.objects[VMI]["status"]["phase"] == "Running", "given up too early"
        assert it.look_until_judged() == Result(RECHECK_S)
    status = kube.objects[VMI]["status"]
    assert status["phase"] == expected
    assert status.get("reason", "") == ("NodeUnresponsive" if expected == "Failed" else "")


def test_vmis_of_a_node_that_does_not_exist_are_not_waited_for(kube: FakeKube) -> None:
    kube.put(VMI, plain_vmi(phase="Running", status={"nodeName": "node1"}))
    with watched(kube, FakeClock()) as it:
        assert it.look() == Result(RECHECK_S)
    assert kube.objects[VMI]["status"]["phase"] == "Failed"
