"""Which nodes fit a Pod, which is chosen, and the sentence for a Pod that fits nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_local.controllers.scheduler.fit import Choice, NodeState, choose
from virt_local.controllers.scheduler.resources import requests

HOSTNAME = "kubernetes.io/hostname"


def node(name: str, *, labels: dict[str, str] | None = None, allocatable: Any = None, **spec: Any) -> NodeState:
    offered = {"cpu": "2", "memory": "1Gi", "pods": "10", "devices.kubevirt.io/tun": "5", **(allocatable or {})}
    plain = {
        "metadata": {"name": name, "labels": {HOSTNAME: name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": offered},
    }
    return NodeState(from_plain(plain, Node))


def pod(name: str = "p", *, labels: dict[str, str] | None = None, namespace: str = "default", **spec: Any) -> Pod:
    resources = spec.pop("resources", {})
    containers = [{"name": "c", "resources": resources}]
    meta = {"name": name, "namespace": namespace, "labels": labels or {}}
    return from_plain({"metadata": meta, "spec": {"containers": containers, **spec}}, Pod)


def anti(label: str) -> dict[str, Any]:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": label}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def near(label: str) -> dict[str, Any]:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": label}}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def carrying(state: NodeState, *pods: Pod) -> NodeState:
    for each in pods:
        state.add(each)
    return state


def test_no_nodes() -> None:
    assert choose(pod(), []).message == "no nodes available to schedule pods"


def test_the_emptiest_node_is_chosen() -> None:
    nodes = [carrying(node("a"), pod("1"), pod("2")), carrying(node("b"), pod("3")), node("c", unschedulable=True)]
    assert choose(pod(), nodes) == Choice(node="b")


def test_equal_nodes_are_taken_in_order() -> None:
    assert choose(pod(), [node("b"), node("a")]).node == "a"


@pytest.mark.parametrize(
    ("wanted", "state", "why"),
    [
        (pod(nodeSelector={"zone": "x"}), node("a"), "node(s) didn't match Pod's node affinity/selector"),
        (pod(), node("a", unschedulable=True), "node(s) were unschedulable"),
        (
            pod(),
            node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
            "node(s) had untolerated taint {k: v}",
        ),
        (pod(resources={"requests": {"cpu": "2500m"}}), node("a"), "Insufficient cpu"),
        (pod(resources={"requests": {"memory": "2Gi"}}), node("a"), "Insufficient memory"),
        (
            pod(resources={"limits": {"devices.kubevirt.io/kvm": "1"}}),
            node("a"),
            "Insufficient devices.kubevirt.io/kvm",
        ),
        (pod(), carrying(node("a", allocatable={"pods": "1"}), pod("x")), "Too many pods"),
        (pod(affinity=near("db")), node("a"), "node(s) didn't match pod affinity rules"),
        (
            pod(affinity=anti("db")),
            carrying(node("a"), pod("x", labels={"app": "db"})),
            "node(s) didn't match pod anti-affinity rules",
        ),
        (
            pod(labels={"app": "web"}),
            carrying(node("a"), pod("x", affinity=anti("web"))),
            "node(s) didn't satisfy existing pods anti-affinity rules",
        ),
    ],
)
def test_each_reason_is_told(wanted: Pod, state: NodeState, why: str) -> None:
    assert choose(wanted, [state]).message == f"0/1 nodes are available: 1 {why}."


def test_reasons_are_counted_and_sorted() -> None:
    nodes = [node("a", unschedulable=True), node("b"), node("c")]
    message = choose(pod(resources={"requests": {"cpu": "8"}}), nodes).message
    assert message == "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], fits: bool) -> None:
    tainted = node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    assert bool(choose(pod(tolerations=[toleration]), [tainted]).node) is fits


def required(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [expression]} for expression in expressions]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "zone", "operator": "In", "values": ["x", "y"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["x"]}, False),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "DoesNotExist"}, True),
        ({"key": "size", "operator": "Gt", "values": ["3"]}, True),
        ({"key": "size", "operator": "Lt", "values": ["3"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["3"]}, False),
    ],
)
def test_node_affinity(expression: dict[str, Any], fits: bool) -> None:
    state = node("a", labels={"zone": "x", "size": "4"})
    assert bool(choose(pod(affinity=required(expression)), [state]).node) is fits


def test_one_matching_term_is_enough() -> None:
    affinity = required({"key": "zone", "operator": "In", "values": ["q"]}, {"key": "zone", "operator": "Exists"})
    assert choose(pod(affinity=affinity), [node("a", labels={"zone": "x"})]).node == "a"


def test_a_preference_beats_an_empty_node() -> None:
    preferred = {"weight": 5, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    nodes = [node("a"), carrying(node("b", labels={"ssd": ""}), pod("x"))]
    assert choose(pod(affinity=affinity), nodes).node == "b"


def test_the_first_of_a_group_starts_it_and_the_others_join() -> None:
    wanted = pod(labels={"app": "db"}, affinity=near("db"))
    assert choose(wanted, [node("a"), node("b")]).node == "a"
    nodes = [node("a"), carrying(node("b"), pod("x", labels={"app": "db"}))]
    assert choose(wanted, nodes).node == "b"


def test_anti_affinity_counts_only_its_own_namespace() -> None:
    state = carrying(node("a"), pod("x", labels={"app": "db"}, namespace="other"))
    assert choose(pod(affinity=anti("db")), [state]).node == "a"


def test_requests_count_limits_init_containers_and_overhead() -> None:
    wanted = from_plain(
        {
            "spec": {
                "containers": [
                    {"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "1Mi"}}},
                    {"name": "b", "resources": {"limits": {"cpu": "200m", "devices.kubevirt.io/tun": "1"}}},
                ],
                "initContainers": [
                    {"name": "i", "resources": {"requests": {"cpu": "50m", "memory": "5Mi"}}},
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "10m"}}},
                ],
                "overhead": {"cpu": "5m"},
            }
        },
        Pod,
    )
    assert requests(wanted) == {"cpu": 315, "memory": 5 << 20, "devices.kubevirt.io/tun": 1}
