"""A running container that gets other resources: its cgroup has them, its process is the same, its Pod says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from functional.local.node.support import Node, eventually, shell

from virt_core.apis.podparts import ResourceRequirements
from virt_core.apis.pods import ContainerStatus, Pod
from virt_local.node.runtime import cgroups

pytestmark = pytest.mark.root
MIB = 1 << 20
BEFORE = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}


def asks(node: Node, uid: str, **resources: Any) -> None:
    pod = node.pods.get(uid)
    assert pod is not None
    wish = msgspec.convert({**BEFORE, **resources}, ResourceRequirements, strict=False)
    container = msgspec.structs.replace(pod.spec.containers[0], resources=wish)
    meta = msgspec.structs.replace(pod.metadata, generation=pod.metadata.generation + 1)
    node.pods.put(
        msgspec.structs.replace(pod, metadata=meta, spec=msgspec.structs.replace(pod.spec, containers=[container]))
    )


def shown(node: Node, uid: str) -> tuple[Pod, ContainerStatus]:
    pod = node.pods.get(uid)
    assert pod is not None
    return pod, pod.status.container_statuses[0]


def memory_limit(node: Node, uid: str) -> int:
    """As the kernel has it, in whichever hierarchy it keeps memory."""
    below = f"{node.settings.cgroup}/pod{uid}"
    names = ("memory.max", "memory.limit_in_bytes")
    found = [
        file
        for hierarchy in cgroups.hierarchies()
        for name in names
        for file in (hierarchy.mount / below.lstrip("/")).glob(f"*/{name}")
    ]
    return int(found[0].read_text())


def test_limits_change_under_a_running_process(node: Node) -> None:
    uid = node.run({"containers": [shell("echo $$; sleep 300", resources=BEFORE)]})
    node.wait_phase(uid, "Running")
    _, before = shown(node, uid)
    assert before.allocated_resources == BEFORE["requests"]
    assert memory_limit(node, uid) == 64 * MIB
    asks(node, uid, limits={"cpu": "1", "memory": "128Mi"}, requests={"cpu": "200m", "memory": "48Mi"})
    eventually(lambda: shown(node, uid)[1].allocated_resources == {"cpu": "200m", "memory": "48Mi"})
    pod, after = shown(node, uid)
    assert memory_limit(node, uid) == 128 * MIB
    assert after.resources is not None
    assert after.resources.limits["memory"] == "128Mi"
    assert (after.container_id, after.restart_count) == (before.container_id, 0)
    assert all(condition.type != "PodResizePending" for condition in pod.status.conditions)


def test_what_the_node_has_not_is_told_and_taken_back(node: Node) -> None:
    uid = node.run({"containers": [shell("sleep 300", resources=BEFORE)]})
    node.wait_phase(uid, "Running")

    def pending() -> list[tuple[str, int]]:
        found = [c for c in shown(node, uid)[0].status.conditions if c.type == "PodResizePending"]
        return [(c.reason, c.observed_generation) for c in found]

    asks(node, uid, requests={"cpu": "100m", "memory": "9999Gi"}, limits={"cpu": "500m", "memory": "9999Gi"})
    generation = shown(node, uid)[0].metadata.generation
    eventually(lambda: pending() == [("Infeasible", generation)])
    assert shown(node, uid)[1].allocated_resources == BEFORE["requests"]
    assert memory_limit(node, uid) == 64 * MIB
    asks(node, uid)
    eventually(lambda: pending() == [])
