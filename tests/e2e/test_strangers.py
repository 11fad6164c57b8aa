"""A right to create Pods is no right over VMs: a Pod that says it is a VM's launcher is none, and goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Space
from .engine import eventually
from .manifests import kernel_boot

pytestmark = pytest.mark.e2e

CONTROLLER = "--as=system:serviceaccount:virtpod:virt-controller"


def false_launcher(space: Space, vmi: dict[str, Any], image: str, command: list[str]) -> None:
    """A Pod with the labels and the controller reference of a launcher, newer than the true one.

    A policy keeps others from making one (test_forgeries.py). This is what stands behind it, where it is switched off.
    """
    owner = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "name": vmi["metadata"]["name"],
        "uid": vmi["metadata"]["uid"],
        "controller": True,
    }
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": vmi["metadata"]["uid"]}
    compute = {"name": "compute", "image": image, "command": command}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "false-launcher", "labels": labels, "ownerReferences": [owner]},
        "spec": {"restartPolicy": "Never", "containers": [compute], "terminationGracePeriodSeconds": 0},
    }
    space.kubectl(CONTROLLER, "create", "-f", "-", stdin=json.dumps(manifest))


def turned_away(space: Space) -> bool:
    pods = space.engine.get("-n", space.namespace, "pods")["items"]
    return all(pod["metadata"]["name"] != "false-launcher" for pod in pods)


def test_a_false_launcher_neither_ends_nor_takes_over_a_guest(space: Space) -> None:
    seen = space.boot(kernel_boot("own"))
    (uid,) = seen["status"]["activePods"]
    pods = space.engine.get("-n", space.namespace, "pods")["items"]
    image = next(pod for pod in pods if pod["metadata"]["uid"] == uid)["spec"]["containers"][0]["image"]
    false_launcher(space, seen, image, ["true"])
    eventually(lambda: turned_away(space), within_s=60, what="the false launcher gone")
    told = ("get", "events", "--field-selector", "reason=StrangerPod", "-o", "name")
    eventually(lambda: space.kubectl(*told).strip(), within_s=30, what="the reason why the Pod went")
    with space.console("own") as console:
        console.prompt()
        assert "still-here" in console.shell("echo still-here", within_s=30)
    now = space.vmi("own")["status"]
    assert (now["phase"], list(now["activePods"])) == ("Running", [uid])

    # One that waits for a node: the false Pod runs first and must not become the machine.
    space.apply(kernel_boot("waits", nodeSelector={"no-node": "has-this"}))
    waiting = eventually(lambda: space.phase("waits", "Scheduling"), within_s=30)
    false_launcher(space, waiting, image, ["sleep", "600"])
    eventually(lambda: turned_away(space), within_s=60, what="the second false launcher gone")
    status = space.vmi("waits")["status"]
    assert (status["phase"], status.get("nodeName", "")) == ("Scheduling", "")
