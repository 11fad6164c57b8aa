"""A launcher Pod that shall be evicted: the machine is asked to move, or it goes."""

from __future__ import annotations

import json
import subprocess

from .conftest import Space
from .engine import eventually
from .manifests import vmi


def evict(space: Space, name: str) -> subprocess.CompletedProcess[str]:
    """Asks for the Pod in which the guest is: while it moves, there is another one."""
    status = space.vmi(name)["status"]
    pods = space.engine.get("-n", space.namespace, "pods", "-l", f"vmi.kubevirt.io/id={name}")["items"]
    here = [
        each["metadata"] for each in pods if status["activePods"].get(each["metadata"]["uid"]) == status["nodeName"]
    ]
    pod = here[0]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": space.namespace}}
    path = f"/api/v1/namespaces/{space.namespace}/pods/{pod}/eviction"
    return space.engine.run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def with_strategy(name: str, strategy: str) -> dict[str, object]:
    manifest = vmi(name)
    manifest["spec"]["evictionStrategy"] = strategy
    return manifest


def test_a_machine_that_others_move_stays_and_is_marked(space: Space) -> None:
    space.apply(with_strategy("stays", "External"))
    node = space.ready("stays")["status"]["nodeName"]
    first = evict(space, "stays")
    assert first.returncode != 0
    assert "Eviction triggered evacuation of VMI" in first.stderr
    assert space.vmi("stays")["status"]["evacuationNodeName"] == node
    assert "Evacuation in progress" in evict(space, "stays").stderr
    assert space.vmi("stays")["status"]["phase"] == "Running"


def test_a_machine_that_must_move_and_cannot_stays_and_says_what_to_do(space: Space) -> None:
    manifest = with_strategy("tied", "LiveMigrate")
    manifest["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "bridge": {}}]
    space.apply(manifest)
    space.ready("tied")
    refused = evict(space, "tied")
    assert refused.returncode != 0
    assert "cannot: a bridge on the Pod network" in refused.stderr
    assert "stop the VMI, or set its evictionStrategy to None" in refused.stderr
    assert "evacuationNodeName" not in space.vmi("tied")["status"]
    assert space.vmi("tied")["status"]["phase"] == "Running"


def test_a_machine_that_cannot_be_kept_goes(space: Space) -> None:
    space.apply(with_strategy("goes", "None"))
    space.ready("goes")
    assert evict(space, "goes").returncode == 0
    eventually(
        lambda: space.vmi("goes")["status"]["phase"] in ("Failed", "Succeeded"), within_s=90, what="the end of the VMI"
    )
