"""The readiness gate of launcher Pods: whose is opened, and when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from virt_controller.vmi import gate
from virt_controller.vmi.readiness import follow
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GATE = names.CONDITION_POD_UNPAUSED


def vmi(*, paused: bool = False) -> VirtualMachineInstance:
    conditions = [{"type": "Ready", "status": "True"}]
    if paused:
        conditions.append({"type": "Paused", "status": "True"})
    return from_plain(
        {"spec": {"domain": {"devices": {}}}, "status": {"phase": "Running", "conditions": conditions}},
        VirtualMachineInstance,
    )


def pod(told: str = "", *, gated: bool = True, **status: Any) -> Pod:
    conditions = [{"type": GATE, "status": told}] if told else []
    spec = {"readinessGates": [{"conditionType": GATE}] if gated else [], "containers": []}
    return from_plain({"spec": spec, "status": {"phase": "Running", "conditions": conditions, **status}}, Pod)


@pytest.mark.parametrize(
    ("machine", "launcher", "wanted"),
    [
        (vmi(), pod(), "True"),
        (vmi(), pod("False"), "True"),
        (vmi(), pod("True"), ""),
        (vmi(paused=True), pod("True"), "False"),
        (vmi(paused=True), pod("False"), ""),
        (vmi(), pod(gated=False), ""),
        (vmi(), pod(phase="Succeeded"), ""),
    ],
)
def test_it_is_open_while_the_guest_goes_on(machine: VirtualMachineInstance, launcher: Pod, wanted: str) -> None:
    assert gate.due(machine, launcher) == wanted


def test_what_is_written_is_one_condition() -> None:
    [condition] = gate.document("False", NOW)["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (GATE, "False", "Paused")


def test_a_closed_gate_is_no_word_of_the_pod_about_the_machine() -> None:
    """Its node says so a moment after the guest has come; the machine was ready all the time."""
    closed = pod(conditions=[{"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}])
    status = vmi().status
    assert follow(status, closed, NOW) == status
