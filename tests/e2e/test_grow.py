"""A guest that gets processors and memory while it runs: it sees them itself, and its Pod has resources for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Space
from .console import Console
from .engine import eventually
from .vms import Machine, conditions, vm

pytestmark = pytest.mark.e2e
GIB = 1 << 20  # In KiB, as the guest counts.

#: Said by the node, or before it by an API server that looks at what the node has.
REFUSALS = {
    "PodResizeInfeasible": "node {node} cannot give the launcher Pod what it needs for that",
    "PodResizeRefused": "node didn't have enough allocatable resources: memory",
}


def start(space: Space, name: str, **memory: Any) -> Machine:
    manifest = vm(name, "Always")
    domain = manifest["spec"]["template"]["spec"]["domain"]
    domain["cpu"] = {"sockets": 1, "cores": 1, "threads": 1}
    domain["memory"] = {"guest": "1Gi", **memory}
    space.apply(manifest)
    machine = Machine(space, name)
    machine.printable("Running")
    return machine


def size(machine: Machine, **parts: Any) -> None:
    """`sockets` and `guest` of the VM."""
    places = {"sockets": "cpu/sockets", "guest": "memory/guest"}
    patch = [
        {"op": "add", "path": f"/spec/template/spec/domain/{places[part]}", "value": value}
        for part, value in parts.items()
    ]
    machine.space.kubectl("patch", "vm", machine.name, "--type=json", "-p", json.dumps(patch))


def processors(console: Console) -> int:
    return number(console, "grep -c ^processor /proc/cpuinfo")


def memory_kib(console: Console) -> int:
    return number(console, "awk '/^MemTotal/ {print $2}' /proc/meminfo")


def number(console: Console, command: str) -> int:
    words = console.shell(f"echo value-$({command})-end").split("value-")
    return next(int(word.split("-")[0]) for word in reversed(words) if word.split("-")[0].isdecimal())


def requests(machine: Machine) -> dict[str, str]:
    """Of the launcher Pod."""
    pods = machine.space.engine.get("-n", machine.space.namespace, "pods", "-l", "kubevirt.io=virt-launcher")["items"]
    [pod] = [p for p in pods if p["metadata"]["ownerReferences"][0]["name"] == machine.name]
    return dict(pod["spec"]["containers"][0]["resources"]["requests"])


def vmi_condition(machine: Machine, type: str) -> dict[str, Any]:
    found = machine.space.vmi(machine.name)["status"].get("conditions") or []
    return next((c for c in found if c["type"] == type), {})


def settled(machine: Machine) -> dict[str, Any] | None:
    status = machine.space.vmi(machine.name)["status"]
    pending = {"HotVCPUChange", "HotMemoryChange"} & conditions(status).keys()
    return None if pending else status


def test_a_guest_grows_and_shrinks_without_a_restart(space: Space) -> None:
    machine = start(space, "sprout")
    with space.console("sprout") as console:
        console.prompt()
        before, uid = console.boot_id(), machine.uid()
        assert processors(console) == 1
        small = memory_kib(console)
        assert small < GIB
        booked = requests(machine)
        size(machine, sockets=3, guest="2Gi")
        eventually(lambda: processors(console) == 3, within_s=90, what="three processors in the guest")
        eventually(lambda: memory_kib(console) > small + GIB * 3 // 4, within_s=90, what="more memory in the guest")
        status = eventually(lambda: settled(machine), within_s=60, what="no change is pending")
        assert status["currentCPUTopology"] == {"cores": 1, "sockets": 3, "threads": 1}
        shown = {key: status["memory"][key] for key in ("guestAtBoot", "guestRequested", "guestCurrent")}
        assert shown == {"guestAtBoot": "1Gi", "guestRequested": "2Gi", "guestCurrent": "2Gi"}
        assert requests(machine) != booked
        grown = requests(machine)
        size(machine, guest="1Gi")
        eventually(lambda: memory_kib(console) < small + GIB // 4, within_s=90, what="memory given back by the guest")
        eventually(lambda: requests(machine)["memory"] != grown["memory"], within_s=60, what="a Pod that books less")
        assert (console.boot_id(), machine.uid()) == (before, uid)
    vm_status = eventually(lambda: caught_up(machine), within_s=30)
    assert "RestartRequired" not in conditions(vm_status)


def caught_up(machine: Machine) -> dict[str, Any] | None:
    status = machine.status()
    return status if status["observedGeneration"] == status["desiredGeneration"] else None


def test_what_a_running_machine_cannot_have_waits_for_a_restart(space: Space) -> None:
    machine = start(space, "limit")
    uid = machine.uid()
    for parts, words in (
        ({"sockets": 5}, "5 CPU sockets are more than the running machine can have (4)"),
        ({"sockets": 1, "guest": "8Gi"}, "8Gi of memory are more than the running machine can have (4Gi)"),
        ({"guest": "512Mi"}, "cannot be less than the 1Gi that it booted with"),
    ):
        size(machine, **parts)
        eventually(lambda words=words: words in restart_words(machine), within_s=30, what=words)  # type: ignore[misc]
    size(machine, guest="1Gi")
    eventually(lambda: restart_words(machine) == "", within_s=30, what="no restart is needed any more")
    assert machine.uid() == uid


def restart_words(machine: Machine) -> str:
    found = [c for c in machine.status().get("conditions") or [] if c["type"] == "RestartRequired"]
    return str(found[0]["message"]) if found else ""


def test_a_node_that_cannot_give_so_much_says_so(space: Space) -> None:
    """The guest stays as it is, and the wish can be taken back."""
    machine = start(space, "glutton", maxGuest="256Gi")
    size(machine, guest="200Gi")
    eventually(
        lambda: vmi_condition(machine, "HotMemoryChange").get("reason") in REFUSALS,
        within_s=60,
        what="the node's refusal",
    )
    told = vmi_condition(machine, "HotMemoryChange")
    node = space.vmi("glutton")["status"]["nodeName"]
    words = REFUSALS[told["reason"]].format(node=node)
    assert told["status"] == "False"
    assert words in told["message"]
    assert space.vmi("glutton")["status"]["memory"]["guestCurrent"] == "1Gi"
    eventually(lambda: "a restart is needed" in restart_words(machine), within_s=30)
    assert words in space.virtctl("explain", "vm", "glutton")
    events = space.engine.get("-n", space.namespace, "events")["items"]
    assert any(e["reason"] == told["reason"] for e in events)
    size(machine, guest="1Gi")
    eventually(lambda: settled(machine) is not None and restart_words(machine) == "", within_s=60, what="all is well")
    assert space.vmi("glutton")["status"]["memory"]["guestCurrent"] == "1Gi"
