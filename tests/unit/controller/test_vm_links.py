"""Links follow a VM's template while its machine runs, and what the machine cannot become is told on the VM."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vms import owned_vmi, plain_vm, vm

from virt_controller.vm.liveupdate import Change, Update, update
from virt_controller.vm.printable import View
from virt_controller.vm.status import Outcome, updated
from virt_core.apis.base import from_plain
from virt_core.apis.devices import Interface
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.runtime.clock import FakeClock

NOW = FakeClock().now()
BUMP = "/metadata/annotations/kubevirt.io~1vm-generation"


def spec() -> VirtualMachineInstanceSpec:
    return from_plain(plain_vm()["spec"]["template"]["spec"], VirtualMachineInstanceSpec)


def running(**status: Any) -> Any:
    vmi = owned_vmi(status=status)
    vmi.spec = spec()
    return vmi


def change(
    before: VirtualMachineInstanceSpec, after: VirtualMachineInstanceSpec, vmi: Any, live: bool = True
) -> Update:
    return update(Change(before, after, vmi, 2, live))


def paths(result: Update) -> list[str]:
    return [operation["path"] for operation in result.operations]


def with_nics(**states: str) -> VirtualMachineInstanceSpec:
    result = spec()
    nics = [{"name": name, "bridge": {}, "state": state} for name, state in states.items()]
    result.domain.devices.interfaces = [from_plain(nic, Interface) for nic in nics]
    return result


@pytest.mark.parametrize("live", [True, False])
def test_a_link_reaches_the_vmi(live: bool) -> None:
    vmi = running()
    vmi.spec = with_nics(a="", b="up")
    result = change(with_nics(a="", b="up"), with_nics(a="", b="down"), vmi, live)
    assert (paths(result), result.message) == (["/spec/domain/devices/interfaces/1/state", BUMP], "")
    assert result.operations[0]["value"] == "down"


def test_a_link_that_goes_up_again_is_found_by_its_name() -> None:
    vmi = running()
    vmi.spec = with_nics(a="down", b="")
    result = change(with_nics(a="", b=""), with_nics(b="up", a=""), vmi)
    up = [operation for operation in result.operations if operation["path"].endswith("/0/state")]
    assert [operation["value"] for operation in up] == ["up"]


def test_a_card_that_shall_go_is_no_link() -> None:
    vmi = running()
    vmi.spec = with_nics(a="")
    result = change(with_nics(a=""), with_nics(a="absent"), vmi)
    assert (paths(result), "interfaces" in result.message) == ([], True)


def test_what_the_node_cannot_change_is_told_on_the_vm() -> None:
    needs = {"type": "RestartRequired", "status": "True", "message": "the guest's memory cannot change"}
    machine, vmi = vm(), running(conditions=[needs])
    status = updated(View(machine, vmi), Outcome(), NOW)
    [told] = [c for c in status.conditions if c.type == "RestartRequired"]
    assert told.message == needs["message"]
    vmi = running()
    machine.status = status
    assert not [c for c in updated(View(machine, vmi), Outcome(), NOW).conditions if c.type == "RestartRequired"]
