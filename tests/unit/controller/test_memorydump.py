"""A memory dump as virt-controller leads it, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from virt_controller.vm.memorydump import plan, without_dumps
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance

ROOT: dict[str, Any] = {"name": "root", "containerDisk": {"image": "guest:v1"}}
DUMP: dict[str, Any] = {"name": "dump", "memoryDump": {"claimName": "dump", "hotpluggable": True}}
INFO = {
    "claimName": "dump",
    "targetFileName": "vm1-dump-1.memory.dump",
    "startTimestamp": "2026-01-01T12:00:00Z",
    "endTimestamp": "2026-01-01T12:00:05Z",
}


def vm(phase: str, volumes: list[dict[str, Any]], **request: Any) -> VirtualMachine:
    body = {
        "metadata": {"name": "vm1", "namespace": "ns"},
        "spec": {"template": {"spec": {"domain": {"devices": {}}, "volumes": volumes}}},
        "status": {"memoryDumpRequest": {"claimName": "dump", "phase": phase, **request}},
    }
    return from_plain(body, VirtualMachine)


def vmi(volumes: list[dict[str, Any]], *statuses: dict[str, Any], phase: str = "Running") -> VirtualMachineInstance:
    body = {
        "metadata": {"name": "vm1", "namespace": "ns"},
        "spec": {"domain": {"devices": {}}, "volumes": volumes},
        "status": {"phase": phase, "volumeStatus": list(statuses)},
    }
    return from_plain(body, VirtualMachineInstance)


def names_in(operations: list[dict[str, Any]]) -> list[str]:
    [operation] = operations
    return [volume["name"] for volume in to_plain(operation["value"])]


def phase_of(found: Any) -> str:
    assert found is not None
    return str(found.request.phase)


def test_the_claim_joins_the_template_and_then_the_machine() -> None:
    first = plan(vm("Associating", [ROOT]), vmi([ROOT]))
    assert first is not None
    assert (phase_of(first), names_in(first.template), first.vmi) == ("InProgress", ["root", "dump"], [])
    then = plan(vm("InProgress", [ROOT, DUMP]), vmi([ROOT]))
    assert then is not None
    assert (phase_of(then), then.template, names_in(then.vmi)) == ("InProgress", [], ["root", "dump"])
    assert plan(vm("InProgress", [ROOT, DUMP]), vmi([ROOT, DUMP])) is None


def test_a_claim_that_still_goes_from_the_last_dump_is_waited_for() -> None:
    assert plan(vm("InProgress", [ROOT, DUMP]), vmi([ROOT], {"name": "dump", "phase": "Detaching"})) is None


def test_a_dump_that_is_written_leaves_the_machine() -> None:
    status = {"name": "dump", "phase": "MemoryDumpCompleted", "memoryDumpVolume": INFO}
    done = plan(vm("InProgress", [ROOT, DUMP]), vmi([ROOT, DUMP], status))
    assert done is not None
    assert done.request is not None
    assert (done.request.phase, done.request.file_name) == ("Unmounting", "vm1-dump-1.memory.dump")
    assert (names_in(done.vmi), done.template, done.noted) == (["root"], [], "vm1-dump-1.memory.dump")
    assert plan(vm("Unmounting", [ROOT, DUMP]), vmi([ROOT], {"name": "dump", "phase": "Detaching"})) is None
    assert phase_of(plan(vm("Unmounting", [ROOT, DUMP]), vmi([ROOT]))) == "Completed"
    assert phase_of(plan(vm("Unmounting", [ROOT, DUMP]), None)) == "Completed"
    assert plan(vm("Completed", [ROOT, DUMP]), vmi([ROOT])) is None


def test_a_dump_that_fails_says_why() -> None:
    status = {"name": "dump", "phase": "MemoryDumpFailed", "message": "no room", "memoryDumpVolume": INFO}
    failed = plan(vm("InProgress", [ROOT, DUMP]), vmi([ROOT, DUMP], status))
    assert failed is not None
    assert failed.request is not None
    assert (failed.request.phase, failed.request.message) == ("Failed", "no room")
    assert names_in(failed.vmi) == ["root"]


@pytest.mark.parametrize("ended", [None, vmi([ROOT, DUMP], phase="Succeeded")])
def test_a_machine_that_ended_has_no_dump(ended: VirtualMachineInstance | None) -> None:
    assert phase_of(plan(vm("InProgress", [ROOT, DUMP]), ended)) == "Failed"


def test_a_claim_that_is_let_go_leaves_everything() -> None:
    going = plan(vm("Dissociating", [ROOT, DUMP], remove=True), vmi([ROOT, DUMP]))
    assert going is not None
    assert (names_in(going.template), names_in(going.vmi)) == (["root"], ["root"])
    gone = plan(vm("Dissociating", [ROOT], remove=True), vmi([ROOT]))
    assert gone is not None
    assert (gone.request, gone.template, gone.vmi) == (None, [], [])


def test_nothing_was_asked_for() -> None:
    assert plan(VirtualMachine(), None) is None


def test_a_machine_starts_without_the_claim() -> None:
    spec = vmi([ROOT, DUMP]).spec
    assert [volume.name for volume in without_dumps(spec.volumes)] == ["root"]
