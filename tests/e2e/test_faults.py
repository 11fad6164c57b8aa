"""Processes die. A guest does not notice its managers' death; its own end is told truly."""

from __future__ import annotations

import os
import signal

import pytest

from .conftest import Space
from .engine import eventually
from .manifests import kernel_boot

pytestmark = [pytest.mark.e2e, pytest.mark.alone]


def message_of(vmi: dict) -> str:  # type: ignore[type-arg]
    status = vmi["status"]
    return " ".join([status.get("reason", ""), *(c.get("message", "") for c in status.get("conditions", []))])


def test_the_guest_outlives_every_service(space: Space) -> None:
    """kill -9 of each service in turn: the same QEMU runs on, the console answers again, and new work is taken on."""
    space.boot(kernel_boot("steady"))
    qemu = space.engine.qemu_pid(space.namespace, "steady")
    for number, component in enumerate(
        ("virt-handler", "virt-controller", "virt-api", "apiserver", "node", "controllers")
    ):
        space.engine.kill_component(component)
        eventually(lambda: space.vmi("steady")["status"]["phase"] == "Running", within_s=30)

        def answers(mark: str = f"mark-{number}") -> bool:
            with space.console("steady") as console:
                console.prompt()
                return mark in console.shell(f"echo {mark}", within_s=10)

        eventually(answers, within_s=60, what=f"console after the death of {component}")
        assert space.engine.qemu_pid(space.namespace, "steady") == qemu, f"another QEMU after the death of {component}"
    eventually(lambda: space.boot(kernel_boot("after")), within_s=120)
    assert space.vmi("steady")["status"]["phase"] == "Running"
    conditions = {c["type"]: c["status"] for c in space.vmi("steady")["status"]["conditions"]}
    assert conditions["Ready"] == "True"


@pytest.mark.parametrize("component", ["virt-handler", "virt-controller", "node", "apiserver"])
def test_a_start_survives_the_death_of_a_service(space: Space, component: str) -> None:
    """kill -9 in the middle of two starts: both guests come up by themselves, each with one QEMU."""
    for number, phase in enumerate(("Scheduling", "Scheduled")):
        name = f"start{number}"
        space.apply(kernel_boot(name))
        eventually(lambda n=name, p=phase: space.vmi(n)["status"]["phase"] in (p, "Running"), within_s=30)  # type: ignore[misc]
        space.engine.kill_component(component)
        space.running(name, within_s=90)
        assert space.engine.qemu_pid(space.namespace, name)


def test_pause_works_after_the_handler_came_back(space: Space) -> None:
    """The new handler holds the old launcher's reins."""
    space.boot(kernel_boot("reins"))
    space.engine.kill_component("virt-handler")
    eventually(lambda: space.virtctl("pause", "vmi", "reins") or True, within_s=60)
    eventually(lambda: "Paused" in {c["type"] for c in space.vmi("reins")["status"]["conditions"]}, within_s=20)
    space.virtctl("unpause", "vmi", "reins")


def test_delete_while_the_handler_is_away_completes(space: Space) -> None:
    """What is deleted during the handler's absence is cleaned up when it is back."""
    space.boot(kernel_boot("absent"))
    for pid in space.engine.component_pids("virt-handler"):
        os.kill(pid, signal.SIGKILL)
    space.kubectl("delete", "vmi", "absent", "--wait=false")
    space.gone("vmi", within_s=90)
    space.gone("pods")


def test_killed_qemu_makes_the_vmi_failed_with_the_reason(space: Space) -> None:
    space.boot(kernel_boot("shot"))
    os.kill(space.engine.qemu_pid(space.namespace, "shot"), signal.SIGKILL)
    failed = space.phase("shot", "Failed", within_s=30)
    assert "SIGKILL" in message_of(failed), failed["status"]
    assert "SIGKILL" in space.virtctl("explain", "vmi", "shot")


def test_killed_launcher_makes_the_vmi_failed_with_the_reason(space: Space) -> None:
    uid = space.boot(kernel_boot("headless"))["metadata"]["uid"]
    os.kill(space.engine.launcher_pid(uid), signal.SIGKILL)
    failed = space.phase("headless", "Failed", within_s=30)
    assert "launcher" in message_of(failed), failed["status"]
    assert "launcher" in space.virtctl("explain", "vmi", "headless")
    with pytest.raises(LookupError):
        space.engine.qemu_pid(space.namespace, "headless")
