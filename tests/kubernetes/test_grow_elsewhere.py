"""A machine that cannot grow where it is moves to a Pod that was made for its new size, and grows there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import KUBEVIRT, Space
from tests.e2e.engine import eventually
from tests.e2e.test_evacuation import jobs
from tests.e2e.test_grow import processors, restart_words, settled, size
from tests.e2e.vms import Machine, conditions, vm

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

WORDS = "Pods of this namespace keep their size"


@pytest.fixture
def moving(space: Space) -> Iterator[None]:
    """The cluster moves machines that need another launcher Pod."""
    before = space.engine.get(*KUBEVIRT)["spec"].get("workloadUpdateStrategy")

    def write(strategy: Any) -> None:
        patch = json.dumps({"spec": {"workloadUpdateStrategy": strategy}})
        space.engine.kubectl("patch", *KUBEVIRT, "--type=merge", "-p", patch)

    write({"workloadUpdateMethods": ["LiveMigrate"]})
    yield
    write(None)
    write(before)


@pytest.fixture
def rigid(space: Space) -> Iterator[None]:
    """No Pod of the space can be resized."""
    name = f"{space.namespace}-rigid"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/resize"]}
    policy = head | {
        "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": WORDS, "reason": "Forbidden"}],
        },
    }
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space.namespace}}}
    binding = head | {
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": where},
    }
    kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy"
    try:
        for each in (policy, binding):
            space.engine.kubectl("create", "-f", "-", stdin=json.dumps(each))
        yield
    finally:
        space.engine.kubectl("delete", kinds, name, "--ignore-not-found")


def start(space: Space, name: str) -> Machine:
    manifest = vm(name, "Always")
    domain = manifest["spec"]["template"]["spec"]["domain"]
    domain["cpu"] = {"sockets": 1, "cores": 1, "threads": 1, "maxSockets": 4}
    domain["memory"] = {"guest": "256Mi"}
    space.apply(manifest)
    space.ready(name)
    return Machine(space, name)


def is_rigid(space: Space) -> bool:
    """Asked as a dry run: a new policy takes a moment."""
    [pod] = space.engine.get("-n", space.namespace, "pods", "-l", "kubevirt.io=virt-launcher")["items"]
    change = {"spec": {"containers": [{"name": "compute", "resources": {"requests": {"cpu": "150m"}}}]}}
    args = ("-n", space.namespace, "patch", "pod", pod["metadata"]["name"], "--subresource=resize", "--dry-run=server")
    return WORDS in space.engine.run("kubectl", *args, "-p", json.dumps(change)).stderr


def booked(space: Space, node: str) -> list[str]:
    """The processor time of each launcher Pod on a node."""
    pods = space.engine.get("-n", space.namespace, "pods", "-l", "kubevirt.io=virt-launcher")["items"]
    containers = [pod["spec"]["containers"][0] for pod in pods if pod["spec"].get("nodeName") == node]
    return [str(each["resources"]["requests"]["cpu"]) for each in containers]


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("moving", "rigid")
def test_a_machine_moves_to_get_its_processors(space: Space) -> None:
    machine = start(space, "wanderer")
    with space.console("wanderer") as console:
        console.prompt(within_s=120)
        before = console.boot_id()
        assert processors(console) == 1
    home, uid = space.vmi("wanderer")["status"]["nodeName"], machine.uid()
    small = booked(space, home)
    eventually(lambda: is_rigid(space), within_s=60, what="a Pod that cannot be resized")
    size(machine, sockets=3)
    eventually(lambda: space.vmi("wanderer")["status"]["nodeName"] != home, within_s=150, what="a move")
    grown = lambda: (settled(machine) or {}).get("currentCPUTopology", {}).get("sockets") == 3  # noqa: E731
    eventually(grown, within_s=90, what="three sockets, and no change that is pending")
    with space.console("wanderer") as console:
        console.prompt(within_s=120)
        eventually(lambda: processors(console) == 3, within_s=60, what="three processors in the guest")
        assert console.boot_id() == before, "it was started anew"
    assert machine.uid() == uid
    eventually(lambda: restart_words(machine) == "", within_s=30, what="no restart is needed any more")
    eventually(lambda: "HotVCPUChange" not in conditions(machine.status()), within_s=30, what="a VM that has caught up")
    status = space.vmi("wanderer")["status"]
    assert len(small) == len(booked(space, status["nodeName"])) == 1
    assert small != booked(space, status["nodeName"]), "it has more processors in a Pod that does not book them"
    [job] = jobs(space, "wanderer")
    assert job["spec"]["priority"] == "user-triggered"
    assert "kubevirt.io/workloadUpdateMigration" in job["metadata"]["annotations"]
    told = {each["reason"] for each in space.engine.get("-n", space.namespace, "events")["items"]}
    assert "PodResizeRefused" in told
