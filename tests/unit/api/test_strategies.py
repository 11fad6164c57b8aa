"""What start, stop and restart mean, strategy by strategy."""

from __future__ import annotations

from typing import Any

import pytest

from virt_api.problems import Problem
from virt_api.subresources import strategies
from virt_api.subresources.strategies import Wish
from virt_core.apis.meta import Condition, ObjectMeta
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec, VirtualMachineStateChangeRequest, VirtualMachineStatus
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus

Request = VirtualMachineStateChangeRequest
START = Request(action="Start")
PAUSED_START = Request(action="Start", data={"paused": "true"})
STOP = Request(action="Stop", uid="u1")


def vm(
    strategy: str = "", *, requests: list[Request] | None = None, condition: str = "", **spec: Any
) -> VirtualMachine:
    conditions = [Condition(type=condition, status="True")] if condition else []
    return VirtualMachine(
        metadata=ObjectMeta(name="vm"),
        spec=VirtualMachineSpec(run_strategy=strategy or None, **spec),
        status=VirtualMachineStatus(state_change_requests=requests or [], conditions=conditions),
    )


def vmi(phase: str = "Running", grace: int | None = None) -> VirtualMachineInstance:
    return VirtualMachineInstance(
        metadata=ObjectMeta(name="vm", uid="u1"),
        spec=VirtualMachineInstanceSpec(termination_grace_period_seconds=grace),
        status=VirtualMachineInstanceStatus(phase=phase),
    )


@pytest.mark.parametrize(
    ("machine", "instance", "paused", "expected"),
    [
        (vm("Halted"), None, False, Wish(strategy="Always")),
        (vm(running=False), None, False, Wish(strategy="Always")),
        (vm("Halted"), None, True, Wish(requests=[PAUSED_START])),
        (vm("Halted"), vmi("Succeeded"), False, Wish(strategy="Always")),
        (vm("Halted"), vmi("Running"), False, 409),
        (vm("Always"), None, False, 409),
        (vm(running=True), None, False, 409),
        (vm("Once"), None, False, 409),
        (vm("Manual"), None, False, Wish(requests=[START])),
        (vm("Manual"), None, True, Wish(requests=[PAUSED_START])),
        (vm("Manual"), vmi("Running"), False, 409),
        (vm("Manual"), vmi("Scheduling"), False, 409),
        (vm("Manual"), vmi("Unknown"), False, Wish(requests=[START])),
        (vm("Manual"), vmi("Failed"), False, Wish(requests=[STOP, START])),
        (vm("Manual"), vmi("Succeeded"), False, Wish(requests=[STOP, START])),
        (vm("RerunOnFailure"), None, False, Wish(requests=[START])),
        (vm("RerunOnFailure"), vmi("Succeeded"), False, Wish(requests=[STOP, START])),
        (vm("RerunOnFailure"), vmi("Failed"), False, 409),
        (vm("WaitAsReceiver"), None, False, Wish()),
        (vm("Manual", requests=[START]), None, False, 409),
        (vm("Halted", condition="ManualRecoveryRequired"), None, False, 409),
    ],
)
def test_start(machine: VirtualMachine, instance: Any, paused: bool, expected: Any) -> None:
    check(lambda: strategies.start(machine, instance, paused=paused), expected)


@pytest.mark.parametrize(
    ("machine", "instance", "grace", "expected"),
    [
        (vm("Always"), vmi(), None, Wish(strategy="Halted")),
        (vm("Always"), None, 5, Wish(strategy="Halted")),
        (vm("Always"), vmi(), 0, Wish(strategy="Halted", grace_s=0)),
        (vm("Once"), vmi(), None, Wish(strategy="Halted")),
        (vm("Manual"), vmi(), None, Wish(requests=[STOP])),
        (vm("Manual"), vmi(), 3, Wish(requests=[STOP], grace_s=3)),
        (vm("Manual", requests=[STOP, START]), vmi(), None, Wish(requests=[STOP])),
        (vm("Manual", requests=[STOP]), vmi(), None, Wish()),
        (vm("RerunOnFailure"), vmi(), None, Wish(requests=[STOP])),
        (vm("RerunOnFailure"), vmi("Failed"), None, 409),
        (vm("Manual"), None, None, 409),
        (vm("Manual"), vmi("Succeeded"), None, 409),
        (vm("Halted"), None, None, 409),
        (vm("Halted"), vmi(), None, 409),
        (vm("Halted"), vmi(grace=20), 20, 409),
        (vm("Halted"), vmi(grace=20), 5, Wish(grace_s=5)),
        (vm("WaitAsReceiver"), vmi(), None, Wish()),
        (vm("Always"), vmi(), -1, 400),
    ],
)
def test_stop(machine: VirtualMachine, instance: Any, grace: int | None, expected: Any) -> None:
    check(lambda: strategies.stop(machine, instance, grace_s=grace), expected)


@pytest.mark.parametrize(
    ("machine", "instance", "grace", "expected"),
    [
        (vm("Always"), vmi(), None, Wish(requests=[STOP, START])),
        (vm("Manual"), vmi(), None, Wish(requests=[STOP, START])),
        (vm("RerunOnFailure"), vmi(), 0, Wish(requests=[STOP, START], grace_s=1)),
        (vm("Always"), vmi(), 5, 400),
        (vm("Always"), None, None, 409),
        (vm("Halted"), vmi(), None, 409),
        (vm("Once"), vmi(), None, 409),
        (vm("Always", requests=[STOP, START]), vmi(), None, 409),
        (vm("Always", condition="VolumesChange"), vmi(), None, 409),
    ],
)
def test_restart(machine: VirtualMachine, instance: Any, grace: int | None, expected: Any) -> None:
    check(lambda: strategies.restart(machine, instance, grace_s=grace), expected)


def check(decide: Any, expected: Any) -> None:
    if isinstance(expected, Wish):
        assert decide() == expected
        return
    with pytest.raises(Problem) as caught:
        decide()
    assert caught.value.code == expected
