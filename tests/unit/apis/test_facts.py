"""What all programs read out of a VM and a VMI in the same way."""

from __future__ import annotations

from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.facts import grace_seconds, is_final, is_terminating, run_strategy
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance


def _vmi(**spec: Any) -> VirtualMachineInstance:
    return from_plain({"spec": {"domain": {}, **spec}}, VirtualMachineInstance)


@pytest.mark.parametrize(("given", "expected"), [({}, 30), ({"terminationGracePeriodSeconds": 0}, 0)])
def test_grace(given: dict[str, int], expected: int) -> None:
    assert grace_seconds(_vmi(**given)) == expected


def test_a_negative_grace_is_none() -> None:
    assert grace_seconds(_vmi(terminationGracePeriodSeconds=-5)) == 0


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"runStrategy": "Once"}, "Once"),
        ({"running": True}, "Always"),
        ({"running": False}, "Halted"),
        ({}, "Halted"),
    ],
)
def test_run_strategy(spec: dict[str, Any], expected: str) -> None:
    assert run_strategy(from_plain({"spec": spec}, VirtualMachine)) == expected


@pytest.mark.parametrize(("phase", "expected"), [("Failed", True), ("Succeeded", True), ("Unknown", False)])
def test_final_phases(phase: str, expected: bool) -> None:
    vmi = _vmi()
    vmi.status.phase = phase
    assert is_final(vmi) is expected


def test_a_deleted_object_terminates_until_it_is_gone() -> None:
    vmi = _vmi()
    assert not is_terminating(vmi)
    vmi.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert is_terminating(vmi)
