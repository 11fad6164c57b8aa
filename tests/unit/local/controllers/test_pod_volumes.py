"""What a Pod's claims mean for its place."""

from __future__ import annotations

from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_local.controllers.scheduler.fit import NodeState, choose
from virt_local.controllers.scheduler.volumes import Volumes, look_at


def pod(name: str = "p", node: str = "", phase: str = "Pending") -> Pod:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    plain = {"metadata": {"name": name, "namespace": "ns", "uid": name}, "status": {"phase": phase}}
    return from_plain({**plain, "spec": {"volumes": volumes, "nodeName": node, "containers": []}}, Pod)


def look(claim: dict[str, Any] | None, mode: str = "Immediate", *others: Pod, **volume: Any) -> Volumes:
    plain = {"metadata": {"name": "data", "namespace": "ns", "uid": "u"}, **(claim or {})}
    found = from_plain(plain, PersistentVolumeClaim) if claim is not None else None
    chosen = from_plain({"metadata": {"name": "c"}, "volumeBindingMode": mode}, StorageClass)
    made = from_plain({"metadata": {"name": "pv"}, "spec": volume}, PersistentVolume)
    return look_at(pod(), lambda _: found, lambda _: made, lambda _: chosen, others)


BOUND = {"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
ALONE = {"spec": {"volumeName": "pv", "accessModes": ["ReadWriteOncePod"]}, "status": {"phase": "Bound"}}
GOING = {**BOUND, "metadata": {"name": "data", "namespace": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("claim", "others", "problem"),
    [
        (None, (), 'persistentvolumeclaim "data" not found'),
        (GOING, (), 'persistentvolumeclaim "data" is being deleted'),
        ({}, (), "pod has unbound immediate PersistentVolumeClaims"),
        (ALONE, (pod("q", "node1"),), "ReadWriteOncePod access mode"),
        (ALONE, (pod("q", "node1", "Succeeded"), pod("r")), ""),
        (BOUND, (pod("q", "node1"),), ""),
    ],
)
def test_what_a_pod_waits_for(claim: dict[str, Any] | None, others: tuple[Pod, ...], problem: str) -> None:
    found = look(claim, "Immediate", *others)
    assert bool(found.problems) is bool(problem)
    assert problem in found.problem(3)


def test_a_claim_that_waits_for_a_consumer_is_told_the_node() -> None:
    found = look({}, "WaitForFirstConsumer")
    assert (found.problems, [each.metadata.name for each in found.unbound]) == ([], ["data"])


def test_a_pod_goes_where_its_volume_is() -> None:
    where = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["two"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
    found = look(BOUND, "Immediate", nodeAffinity=affinity)
    nodes = [
        NodeState(from_plain({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}, Node))
        for name in ("one", "two")
    ]
    assert choose(pod(), nodes, found.fit).node == "two"
    assert "volume node affinity conflict" in choose(pod(), nodes[:1], found.fit).message
