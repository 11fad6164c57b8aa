"""A guest that runs while its VM changes: it follows, whatever happens to the programs in between."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from .conftest import Space
from .console import Console
from .engine import eventually
from .vms import Machine, conditions, make

pytestmark = pytest.mark.e2e


def link(machine: Machine, state: str) -> None:
    patch = [{"op": "add", "path": "/spec/template/spec/domain/devices/interfaces/0/state", "value": state}]
    machine.space.kubectl("patch", "vm", machine.name, "--type=json", "-p", json.dumps(patch))


def shown(machine: Machine) -> dict[str, Any]:
    """The card as the VMI's status shows it."""
    return dict(machine.space.vmi(machine.name)["status"]["interfaces"][0])


def carrier(console: Console, wanted: int) -> None:
    """What the guest's own driver sees of the cable."""
    see = f"[ $(cat /sys/class/net/eth0/carrier) = {wanted} ] && echo seen-$((6*7))"
    eventually(lambda: "seen-42" in console.shell(see), within_s=30, what=f"carrier {wanted} in the guest")


def test_the_link_follows_the_vm(space: Space) -> None:
    machine = make(space, "cable", "Always")
    machine.printable("Running")
    with space.console("cable") as console:
        console.prompt()
        carrier(console, 1)
        for state, seen in (("down", 0), ("up", 1)):
            link(machine, state)
            carrier(console, seen)
            eventually(lambda state=state: shown(machine)["linkState"] == state, within_s=30)  # type: ignore[misc]
    status = eventually(lambda: caught_up(machine), within_s=30)
    assert "RestartRequired" not in conditions(status)
    assert "Synchronized" not in conditions(space.vmi("cable")["status"])


def caught_up(machine: Machine) -> dict[str, Any] | None:
    status = machine.status()
    return status if status["observedGeneration"] == status["desiredGeneration"] else None


@pytest.mark.alone
def test_a_change_that_nobody_saw_is_made_by_the_next_virt_handler(space: Space) -> None:
    """It stands still while the VM changes, and is then killed: it has not even seen what it is to do."""
    machine = make(space, "unseen", "Always")
    machine.printable("Running")
    with space.console("unseen") as console:
        console.prompt()
        carrier(console, 1)
    node = space.vmi("unseen")["status"]["nodeName"]
    uid, emulator = machine.uid(), space.engine.qemu_pid(space.namespace, "unseen")
    os.kill(space.engine.handler_pid(node), signal.SIGSTOP)
    try:
        link(machine, "down")
        eventually(lambda: wish(machine) == "down", within_s=30, what="the VMI asks for it")
        assert shown(machine)["linkState"] == "up"
    finally:
        space.engine.kill_component("virt-handler")
    eventually(lambda: shown(machine)["linkState"] == "down", within_s=60)
    with space.console("unseen") as console:
        console.prompt()
        carrier(console, 0)
    assert (machine.uid(), space.engine.qemu_pid(space.namespace, "unseen")) == (uid, emulator)


def wish(machine: Machine) -> str:
    nic = machine.space.vmi(machine.name)["spec"]["domain"]["devices"]["interfaces"][0]
    return str(nic.get("state", ""))
