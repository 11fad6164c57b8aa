"""Network cards of the node: which device is whose, and what becomes of them when a machine moves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.framework.fake_hypervisor import FakeHypervisor
from tests.framework.waiting import eventually
from tests.unit.launcher.cases import CASES, Case, context_of
from tests.unit.launcher.machines import changed, started, wanted
from tests.unit.launcher.test_moves_source import VMI, World
from virt_launcher.converge.changes import Act, DeviceChange
from virt_launcher.converge.difference import difference
from virt_launcher.convert.converter import convert
from virt_launcher.convert.sriov import told
from virt_launcher.domain.devices import HostAddress, HostDev
from virt_launcher.domain.domain import Domain, from_xml, to_xml
from virt_launcher.errors import InvalidVMIError, LauncherError, WrongStateError
from virt_launcher.moves.traffic import Wishes

SRIOV = CASES["sriov"]


def two(environment: dict[str, str], info: Path = Path("/absent")) -> Case:
    """A machine with two cards."""
    names = ("a", "b")
    return Case(
        domain={"devices": {"interfaces": [{"name": name, "sriov": {}} for name in names]}},
        spec={"networks": [{"name": name, "multus": {"networkName": name}} for name in names]},
        context={"environment": environment, "network_info": info},
    )


def addresses(case: Case) -> dict[str, str]:
    devices = convert(context_of(case)).devices.hostdevs
    return {d.alias or "": f"{d.source.bus}.{d.source.function}" for d in devices if d.source is not None}


def test_the_file_goes_before_the_order_of_the_variable() -> None:
    assert addresses(SRIOV) == {
        "ua-sriov-fast": "0x65.0x2",
        "ua-sriov-near": "0x65.0x3",
        "ua-sriov-claimed": "0x65.0x0",
        "ua-sriov-single": "0x66.0x1",
    }


def test_one_card_of_a_resource_needs_no_file() -> None:
    given = {
        "KUBEVIRT_RESOURCE_NAME_a": "x.y/one", "PCIDEVICE_X_Y_ONE": "0000:01:00.1",
        "KUBEVIRT_RESOURCE_NAME_b": "x.y/two", "PCIDEVICE_X_Y_TWO": "0000:02:00.1",
    }  # fmt: skip
    assert addresses(two(given)) == {"ua-sriov-a": "0x01.0x1", "ua-sriov-b": "0x02.0x1"}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"KUBEVIRT_RESOURCE_NAME_a": "x.y/z", "KUBEVIRT_RESOURCE_NAME_b": "x.y/z", "PCIDEVICE_X_Y_Z": "0000:01:00.1"},
        {"KUBEVIRT_RESOURCE_NAME_a": "x.y/z", "KUBEVIRT_RESOURCE_NAME_b": "x.y/w"},
        {"KUBEVIRT_RESOURCE_NAME_a": "x.y/z", "PCIDEVICE_X_Y_Z": "0000:01:00.1,0000:01:00.2"},
    ],
)  # fmt: skip
def test_who_does_not_know_waits(given: dict[str, str]) -> None:
    """Not refused for good: the node brings the file in a moment later."""
    with pytest.raises(WrongStateError, match=r"interfaces\[0\]: the Pod does not say yet"):
        convert(context_of(two(given)))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"interfaces": 7}', '{"interfaces": [{"network": "a"}]}'])
def test_a_file_that_is_not_written_yet(tmp_path: Path, text: str) -> None:
    file = tmp_path / "network-info"
    file.write_text(text)
    assert told(file) == {}
    assert told(tmp_path / "absent") == {}


def test_what_is_no_address_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "network-info"
    entry = {"network": "a", "deviceInfo": {"pci": {"pci-address": "../../0000:01:00.0"}}}
    file.write_text(json.dumps({"interfaces": [entry]}))
    with pytest.raises(InvalidVMIError, match="not a PCI address"):
        convert(context_of(two({}, file)))


def test_a_card_that_the_machine_lacks_is_plugged_in() -> None:
    """After a move: the machine came without it, and its new Pod has another one."""
    live = started(SRIOV)
    live.devices.hostdevs = [card for card in live.devices.hostdevs if card.alias != "ua-sriov-fast"]
    [change] = difference(wanted(SRIOV, live), live)
    assert isinstance(change, DeviceChange)
    assert (change.act, change.tag, change.name) == (Act.ATTACH, "hostdev", "sriov-fast")
    after = changed(live, [change])
    assert difference(wanted(SRIOV, after), after) == ()


def test_a_card_stays_beside_other_devices_of_the_node() -> None:
    case = CASES["host-devices"]
    live = started(case)
    assert difference(wanted(case, live), live) == ()
    live.devices.hostdevs = []
    assert all("hostDevices" in getattr(change, "field", "") for change in difference(wanted(case, live), live))


def card(name: str) -> HostDev:
    source = HostAddress(domain="0x0000", bus="0x65", slot="0x00", function="0x2")
    return HostDev(mode="subsystem", type="pci", managed=False, source=source, alias=f"ua-sriov-{name}")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.hypervisor = running = FakeHypervisor("ns_vm")
    domain = Domain(name="ns_vm")
    domain.devices.hostdevs = [card("a"), card("b"), replace(card("x"), alias="ua-hostdevice-x")]
    running.define(to_xml(domain))
    running.start()
    made.traffic._hypervisor = running
    return made


def held(world: World) -> list[str]:
    return sorted(device.alias or "" for device in from_xml(world.hypervisor.describe()).devices.hostdevs)


def test_cards_are_pulled_before_a_move_and_stay_behind(world: World) -> None:
    world.traffic.leave(VMI, Wishes(uid="job"))
    eventually(lambda: "migrate" in world.hypervisor.calls)
    assert held(world) == ["ua-hostdevice-x"]
    world.hypervisor.finish_move()
    assert not world.over().failed
    assert not any(call.startswith("attach_device") for call in world.hypervisor.calls)


def test_cards_come_back_when_the_move_fails(world: World) -> None:
    world.traffic.leave(VMI, Wishes(uid="job"))
    world.hypervisor.finish_move(LauncherError("no such host"))
    assert world.over().reason == "the move failed: no such host"
    assert held(world) == ["ua-hostdevice-x", "ua-sriov-a", "ua-sriov-b"]


def test_a_guest_that_keeps_a_card_stays(world: World) -> None:
    world.hypervisor.device_errors["ua-sriov-b"] = "the guest did not release it"
    world.traffic.leave(VMI, Wishes(uid="job"))
    view = world.over()
    assert view.failed
    assert "the network card b could not be pulled: the guest did not release it within 30 s" in view.reason
    assert held(world) == ["ua-hostdevice-x", "ua-sriov-a", "ua-sriov-b"]
    assert "migrate" not in world.hypervisor.calls


def test_a_card_that_does_not_come_back_is_named(world: World) -> None:
    world.traffic.leave(VMI, Wishes(uid="job"))
    eventually(lambda: held(world) == ["ua-hostdevice-x"])
    world.hypervisor.device_errors["ua-sriov-a"] = "gone from the bus"
    world.hypervisor.finish_move(LauncherError("no such host"))
    assert "the network card a was not put back: " in world.over().reason
    assert held(world) == ["ua-hostdevice-x", "ua-sriov-b"]


def test_given_up_while_a_card_is_pulled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = world.hypervisor.detach_device

    def slow(alias: str, deadline_s: float) -> None:
        real(alias, deadline_s)
        world.traffic.cancel("job")

    monkeypatch.setattr(world.hypervisor, "detach_device", slow)
    world.traffic.leave(VMI, Wishes(uid="job"))
    view: Any = world.over()
    assert (view.failed, view.abort) == (True, "Succeeded")
    assert held(world) == ["ua-hostdevice-x", "ua-sriov-a", "ua-sriov-b"]
    assert "migrate" not in world.hypervisor.calls
