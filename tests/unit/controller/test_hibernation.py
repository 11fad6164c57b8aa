"""A machine's state as virt-controller leads it: into a claim, and back at the next start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from virt_controller.vm import hibernation
from virt_controller.vm.hibernation import Plan, World, misfit, needed, plan, resuming
from virt_controller.vm.setup import make_vmi, template_spec
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.hibernation import VirtualMachineHibernation, resumption
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
FILE = "vm1-uid-1-20260101-120000.machine.state"
DISK = {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}
VOLUME = {"name": "virtpod-machine-state", "memoryDump": {"claimName": "sleep", "hotpluggable": True}}
INFO = {"claimName": "sleep", "targetFileName": FILE, "endTimestamp": "2026-01-01T12:00:05Z"}
WORLD = World("digest", {"root": "claim-uid"})


def vm(phase: str, strategy: str = "Always", **state: Any) -> VirtualMachine:
    body = {
        "metadata": {"name": "vm1", "namespace": "ns", "uid": "vm-uid"},
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {"annotations": {"virtpod.io/resume-from": "forged"}},
                "spec": {
                    "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
                    "volumes": [DISK],
                },
            },
        },
        "status": {"hibernation": {"phase": phase, "vmiUID": "vmi-uid", **state}},
    }
    return from_plain(body, VirtualMachine)


def vmi(*statuses: dict[str, Any], phase: str = "Running", volumes: tuple[Any, ...] = (), **meta: Any) -> Any:
    body = {
        "metadata": {"name": "vm1", "namespace": "ns", "uid": "vmi-uid", "annotations": {}} | meta,
        "spec": {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}, "volumes": [DISK, *volumes]},
        "status": {
            "phase": phase,
            "machine": {"type": "pc-q35-7.2"},
            "interfaces": [{"name": "default", "mac": "02:00:00:00:00:01"}],
            "volumeStatus": list(statuses),
        },
    }
    return from_plain(body, VirtualMachineInstance)


def status(phase: str, **more: Any) -> dict[str, Any]:
    return {"name": "virtpod-machine-state", "phase": phase, "memoryDumpVolume": INFO, **more}


def planned(machine: VirtualMachine, seen: VirtualMachineInstance | None, now: datetime = NOW) -> Plan:
    found = plan(machine, seen, lambda: WORLD, now)
    assert found is not None
    return found


def phase(found: Plan) -> str:
    return found.state.phase if found.state is not None else ""


def test_a_request_makes_a_claim_and_brings_it_to_the_machine() -> None:
    found = planned(vm("Requested"), vmi())
    assert found.claim is not None
    assert found.state is not None
    assert (phase(found), found.state.owned) == ("Saving", True)
    assert found.claim.metadata.name == found.state.claim_name
    assert found.claim.metadata.owner_references[0].uid == "vm-uid"
    assert (found.state.spec_digest, found.state.claims) == ("digest", {"root": "claim-uid"})
    assert found.state.mac_addresses == {"default": "02:00:00:00:00:01"}
    note, volumes = (to_plain(each) for each in found.vmi)
    assert note["value"] == "hibernate"
    assert [each["name"] for each in volumes["value"]] == ["root", "virtpod-machine-state"]


def test_a_claim_that_is_named_is_taken_as_it_is() -> None:
    found = planned(vm("Requested", claimName="mine"), vmi())
    assert found.claim is None
    assert found.state is not None
    assert (found.state.claim_name, found.state.owned) == ("mine", False)


@pytest.mark.parametrize("seen", [None, vmi(phase="Succeeded"), vmi(uid="another")])
def test_a_machine_that_is_gone_is_not_saved(seen: VirtualMachineInstance | None) -> None:
    for before in ("Requested", "Saving"):
        found = planned(vm(before, claimName="sleep", owned=True), seen)
        assert (phase(found), found.drop, found.halt) == ("Failed", "sleep", False)


@pytest.mark.parametrize(("strategy", "halts"), [("Always", True), ("Manual", False), ("RerunOnFailure", False)])
def test_a_state_counts_when_the_machine_has_ended_by_it(strategy: str, halts: bool) -> None:
    machine = vm("Saving", strategy, claimName="sleep", startTimestamp="2026-01-01T12:00:00Z")
    assert plan(machine, vmi(status("MemoryDumpInProgress"), volumes=(VOLUME,)), lambda: WORLD, NOW) is None
    assert plan(machine, vmi(status("MemoryDumpCompleted"), volumes=(VOLUME,)), lambda: WORLD, NOW) is None
    found = planned(machine, vmi(status("MemoryDumpCompleted"), phase="Succeeded"))
    assert found.state is not None
    assert (phase(found), found.state.file_name, found.halt) == ("Saved", FILE, halts)
    lost = planned(machine, vmi(status("MemoryDumpInProgress"), phase="Failed"))
    assert (phase(lost), lost.halt) == ("Failed", False)


def test_what_fails_leaves_the_machine() -> None:
    asked = {"virtpod.io/save-state": "hibernate"}
    seen = vmi(status("MemoryDumpFailed", message="no space"), volumes=(VOLUME,), annotations=asked)
    found = planned(vm("Saving", claimName="sleep", startTimestamp="2026-01-01T12:00:00Z"), seen)
    assert found.state is not None
    assert (phase(found), found.state.message) == ("Failed", "no space")
    assert [each["op"] for each in found.vmi] == ["remove", "add"]


def test_a_claim_that_does_not_come_is_given_up() -> None:
    machine = vm("Saving", claimName="sleep", startTimestamp="2026-01-01T12:00:00Z")
    seen = vmi({"name": "virtpod-machine-state", "phase": "Pending", "message": "not bound"}, volumes=(VOLUME,))
    assert planned(machine, seen).wait_s == hibernation.ATTACH_S
    late = planned(machine, seen, NOW + timedelta(seconds=hibernation.ATTACH_S))
    assert late.state is not None
    assert (phase(late), late.state.message.endswith("not bound")) == ("Failed", True)


def test_only_a_machine_that_ran_has_used_its_state_up() -> None:
    kept: dict[str, Any] = {"claimName": "sleep", "fileName": FILE, "owned": True}
    by: dict[str, Any] = {"annotations": {"virtpod.io/resume-from": f'{{"claim":"sleep","file":"{FILE}"}}'}}
    assert phase(planned(vm("Saved", **kept), vmi(phase="Scheduling", **by))) == "Resuming"
    used = planned(vm("Resuming", **kept), vmi(**by))
    assert (phase(used), used.drop) == ("Resumed", "sleep")
    assert phase(planned(vm("Resuming", **kept), vmi(phase="Failed", **by))) == "Saved"
    assert phase(planned(vm("Resuming", **kept), None)) == "Saved"
    # That it ran before it was saved says nothing.
    assert plan(vm("Saved", **kept), vmi(phase="Succeeded"), lambda: WORLD, NOW) is None


def test_a_state_from_a_snapshot_is_bound_to_what_came_with_it() -> None:
    machine = vm("Saved", claimName="sleep", fileName=FILE, copied=True)
    found = planned(machine, None)
    assert found.state is not None
    assert (found.state.spec_digest, found.state.claims) == ("digest", {"root": "claim-uid"})


def test_a_state_that_is_discarded_takes_its_claim_along() -> None:
    found = planned(vm("Discarded", claimName="sleep", owned=True), None)
    assert (found.state, found.drop) == (None, "sleep")


def test_what_does_not_fit_is_named() -> None:
    state = VirtualMachineHibernation(spec_digest="digest", claims={"root": "claim-uid"})
    assert misfit(state, WORLD) == ""
    assert "spec.template" in misfit(state, World("other", WORLD.claims))
    assert "root" in misfit(state, World("digest", {"root": "new-uid"}))


def test_the_machine_that_goes_on_is_the_one_that_was_saved() -> None:
    machine = vm("Saved", claimName="sleep", fileName=FILE, machineType="pc-q35-7.2", macAddresses={"default": "02::1"})
    made = make_vmi(machine, template_spec(machine), resume=machine.status.hibernation)
    wanted = resumption(made)
    assert wanted is not None
    assert (wanted.claim, wanted.file, wanted.copied) == ("sleep", FILE, False)
    assert made.spec.domain.machine is not None
    assert made.spec.domain.machine.type == "pc-q35-7.2"
    assert made.spec.domain.devices.interfaces[0].mac_address == "02::1"
    # What stands in the template is no state.
    assert resumption(make_vmi(machine, template_spec(machine))) is None


def test_the_claim_has_room() -> None:
    assert needed(vmi()) > (128 << 20) + (100 << 20)
    spec = template_spec(vm("Saved"))
    assert resuming(spec, VirtualMachineHibernation(claim_name="sleep", file_name=FILE)) != {}
