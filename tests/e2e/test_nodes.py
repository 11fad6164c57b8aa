"""A node whose virt-handler is gone: it takes no new VMs, its guests are left alone, and only what is known to be dead
is started elsewhere. And a node that pretends to be another one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from .conftest import Space
from .engine import Engine, eventually
from .manifests import kernel_boot
from .vms import Machine, vm

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

ZONE = "virtpod.test/zone"
SCHEDULABLE = "kubevirt.io/schedulable"
#: Named as those of all tests, whose end the engine waits for.
NAMESPACE = f"e2e-{os.getpid()}-silent"
LONG_AGO = "kubevirt.io/heartbeat=2020-01-01T00:00:00Z"


@contextmanager
def silent_handler(engine: Engine, node: str) -> Iterator[None]:
    """Its virt-handler stands still, and has not been heard of for long: nobody wants to wait for five minutes."""
    pid = engine.handler_pid(node)
    os.kill(pid, signal.SIGSTOP)
    try:
        engine.kubectl("annotate", "node", node, "--overwrite", LONG_AGO)
        engine.kubectl("label", "node", node, "--overwrite", "virtpod.test/poke=1")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        engine.kubectl("label", "node", node, f"{SCHEDULABLE}=true", "--overwrite")
        engine.kubectl("label", "node", node, "virtpod.test/poke-", f"{ZONE}-")


def zoned(name: str) -> dict[str, Any]:
    manifest = vm(name, "Always")
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {ZONE: "a"}
    return manifest


def label(engine: Engine, node: str) -> str:
    return str(engine.get("node", node)["metadata"]["labels"].get(SCHEDULABLE))


def test_a_silent_node(pair: Engine) -> None:
    first, second = sorted(node["metadata"]["name"] for node in pair.get("nodes")["items"])[:2]
    pair.kubectl("create", "namespace", NAMESPACE)
    space = Space(pair, NAMESPACE)
    try:
        pair.kubectl("label", "node", second, f"{ZONE}=a", "--overwrite")
        space.apply(zoned("lost"))
        machine = Machine(space, "lost")
        machine.printable("Running")
        with silent_handler(pair, second):
            given_up_when_dead(space, machine, second, first)
    finally:
        pair.kubectl("label", "node", first, f"{ZONE}-")
        pair.drop_namespace(NAMESPACE)


def given_up_when_dead(space: Space, machine: Machine, node: str, other: str) -> None:
    engine, uid = space.engine, machine.uid()
    eventually(lambda: label(engine, node) == "false", within_s=30, what="the node takes no new VMs")
    events = space.engine.kubectl("-n", "default", "get", "events", "--field-selector", f"involvedObject.name={node}")
    assert "NodeUnresponsive" in events
    space.apply(zoned("late"))
    Machine(space, "late").printable("ErrorUnschedulable", within_s=30)
    engine.kubectl("label", "node", other, f"{ZONE}=a", "--overwrite")
    Machine(space, "late").printable("Running")
    assert (machine.uid(), space.vmi("lost")["status"]["phase"]) == (uid, "Running"), "it runs on without its handler"
    pods = engine.get("-n", space.namespace, "pods", "-l", "vmi.kubevirt.io/id=lost")["items"]
    space.kubectl("delete", "pod", pods[0]["metadata"]["name"], "--force", "--grace-period=0")
    machine.restarted(uid)
    assert space.vmi("lost")["status"]["nodeName"] == other


ADDRESS = "virtpod.io/handler-address"


def test_one_node_does_not_answer_for_another(pair: Engine) -> None:
    """Whoever gets a node's traffic, here by a forged address, is not that node: its certificate says who it is."""
    first, second = sorted(node["metadata"]["name"] for node in pair.get("nodes")["items"])[:2]
    namespace = f"{NAMESPACE}-name"
    pair.kubectl("create", "namespace", namespace)
    space = Space(pair, namespace)
    true = pair.get("node", second)["metadata"]["annotations"][ADDRESS]
    forged = pair.get("node", first)["metadata"]["annotations"][ADDRESS]
    try:
        space.boot(kernel_boot("meant", nodeSelector={"kubernetes.io/hostname": second}))
        eventually(lambda: misled(space, second, forged), within_s=60, what="an attempt between two heartbeats")
        pair.kubectl("annotate", "node", second, "--overwrite", f"{ADDRESS}={true}")
        space.virtctl("pause", "vmi", "meant")
    finally:
        pair.kubectl("annotate", "node", second, "--overwrite", f"{ADDRESS}={true}")
        pair.drop_namespace(namespace)


def misled(space: Space, node: str, forged: str) -> bool:
    """One attempt; False if the node's own virt-handler put its address right meanwhile."""
    space.engine.kubectl("annotate", "node", node, "--overwrite", f"{ADDRESS}={forged}")
    done = space.engine.run("virtctl", "-n", space.namespace, "pause", "vmi", "meant")
    if space.engine.get("node", node)["metadata"]["annotations"][ADDRESS] != forged:
        return False
    assert done.returncode != 0, done.stdout
    # The other node would have said that it has no such machine; nobody got as far as asking it.
    if f"virt-handler on node {node} does not answer" not in done.stderr:
        pytest.fail(done.stderr)
    return True
