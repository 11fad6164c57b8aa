"""The parts of Kubernetes die while a guest runs: the guest never stops, and everything comes back by itself."""

from __future__ import annotations

import os
import signal

import pytest

from tests.cluster import Cluster
from tests.e2e.conftest import Space
from tests.e2e.engine import eventually
from tests.e2e.manifests import kernel_boot

pytestmark = pytest.mark.alone

PARTS = ("kubelet", "containerd", "apiserver", "etcd", "scheduler", "controller-manager", "kube-proxy")


def kill(cluster: Cluster, part: str) -> None:
    """kill -9 of a part on every node, and wait until others have taken its place."""
    old = cluster.pids(part)
    assert old, f"{part} does not run"
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    eventually(
        lambda: len(new := cluster.pids(part)) == len(old) and not set(new) & set(old),
        within_s=60,
        what=f"{part} restarted",
    )


def answers(space: Space, name: str, mark: str) -> bool:
    with space.console(name) as console:
        console.prompt()
        return mark in console.shell(f"echo {mark}", within_s=10)


def ready(space: Space, name: str) -> bool:
    conditions = {c["type"]: c["status"] for c in space.vmi(name)["status"]["conditions"]}
    return conditions.get("Ready") == "True"


@pytest.mark.parametrize("part", PARTS)
def test_the_guest_outlives(owned: Cluster, space: Space, part: str) -> None:
    """Same QEMU, its console answers, it is Ready again, and another guest starts."""
    space.boot(kernel_boot("steady"))
    qemu = space.engine.qemu_pid(space.namespace, "steady")
    kill(owned, part)
    eventually(lambda: answers(space, "steady", f"after-{part}"), within_s=120, what=f"console after {part}'s death")
    assert space.engine.qemu_pid(space.namespace, "steady") == qemu
    eventually(lambda: ready(space, "steady"), within_s=60, what="Ready")
    eventually(lambda: space.boot(kernel_boot("after")), within_s=180, what=f"another guest after {part}'s death")
    assert space.vmi("steady")["status"]["phase"] == "Running"


def test_guests_outlive_a_kubelet_that_dies_while_virt_handler_is_away(owned: Cluster, space: Space) -> None:
    """As in an update of both. A kubelet that starts asks again whether the Pods that run may be on its node, by the
    labels that it has now; virt-handler, which would correct them, has not started yet."""
    names = ("first", "second")
    for name in names:
        space.boot(kernel_boot(name))
    before = {name: space.engine.qemu_pid(space.namespace, name) for name in names}
    handlers = set(space.engine.component_pids("virt-handler"))
    owned.kubectl("-n", "virtpod", "delete", "pod", "-l", "kubevirt.io=virt-handler", "--wait=false")
    eventually(
        lambda: not handlers & set(space.engine.component_pids("virt-handler")), within_s=30, what="handlers end"
    )
    kill(owned, "kubelet")
    owned.kubectl("-n", "virtpod", "rollout", "status", "daemonset/virt-handler", "--timeout=120s", timeout=140)
    for name in names:
        eventually(lambda n=name: answers(space, n, "here"), within_s=60, what=f"console of {name}")  # type: ignore[misc]
        eventually(lambda n=name: ready(space, n), within_s=60, what=f"{name} Ready")  # type: ignore[misc]
    assert {name: space.engine.qemu_pid(space.namespace, name) for name in names} == before
    pods = space.engine.get("-n", space.namespace, "pods")["items"]
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}


def test_a_dead_nodes_machines_are_not_started_elsewhere_before_they_are_known_dead(
    owned: Cluster, space: Space
) -> None:
    """Nobody knows whether the guests of a silent node still write to their disks. Only when the node is gone for good
    (its Pod is) another one may start."""
    if len(owned.nodes) < 2:
        pytest.skip("needs two nodes")
    machine = kernel_boot("mourned")
    space.apply(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": "mourned"},
            "spec": {"runStrategy": "Always", "template": {"metadata": {}, "spec": machine["spec"]}},
        }
    )
    eventually(lambda: space.vmi("mourned")["status"]["phase"] == "Running", within_s=120)
    first = space.vmi("mourned")
    node = first["status"]["nodeName"]
    owned.kill_node(node)
    try:
        eventually(lambda: not_ready(owned, node), within_s=120, what=f"{node} is not ready")
        eventually(lambda: not ready(space, "mourned"), within_s=90, what="the VMI is not Ready")
        assert space.vmi("mourned")["metadata"]["uid"] == first["metadata"]["uid"], "started elsewhere too early"
        pods = space.engine.get("-n", space.namespace, "pods")["items"]
        assert {p["spec"]["nodeName"] for p in pods} == {node}, "a second launcher while the first may live"
        # The administrator says that the node is gone for good.
        owned.kubectl("taint", "node", node, "node.kubernetes.io/out-of-service=dead:NoExecute")
        eventually(lambda: started_again(space, first), within_s=240, what="the VM on another node")
        assert space.vmi("mourned")["status"]["nodeName"] != node
    finally:
        # Where an assertion came before the taint there is none to take off; the node must come back all the same.
        owned.try_kubectl("taint", "node", node, "node.kubernetes.io/out-of-service-")
        owned.start_node(node)
        eventually(lambda: not not_ready(owned, node), within_s=120, what=f"{node} is back")
    owned.kubectl("-n", "virtpod", "rollout", "status", "daemonset/virt-handler", "--timeout=120s", timeout=140)


def not_ready(cluster: Cluster, node: str) -> bool:
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return cluster.kubectl("get", "node", node, "-o", path).strip() != "True"


def started_again(space: Space, first: dict) -> bool:  # type: ignore[type-arg]
    vmi = space.vmi("mourned")
    return bool(vmi["metadata"]["uid"] != first["metadata"]["uid"] and vmi["status"].get("phase") == "Running")
