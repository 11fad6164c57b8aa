"""Network cards that the VM's template gets and loses while its machine runs."""

from __future__ import annotations

from typing import Any

from virt_controller.vm import liveupdate, nics
from virt_core.apis.base import from_plain
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec


def spec(*cards: dict[str, Any], definition: str = "blue-net") -> dict[str, Any]:
    return {
        "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}, *cards]}},
        "networks": [
            {"name": "default", "pod": {}},
            *({"name": card["name"], "multus": {"networkName": definition}} for card in cards),
        ],
    }


def card(**more: Any) -> dict[str, Any]:
    return {"name": "blue", "bridge": {}, **more}


def machine(
    *cards: dict[str, Any], shown: tuple[str, ...] = ("default",), movable: bool = False
) -> VirtualMachineInstance:
    status: dict[str, Any] = {"interfaces": [{"name": name, "infoSource": "domain"} for name in shown]}
    if movable:
        status |= {"phase": "Running", "conditions": [{"type": "LiveMigratable", "status": "True"}]}
    return from_plain({"metadata": {"name": "m"}, "spec": spec(*cards), "status": status}, VirtualMachineInstance)


def change(
    started: dict[str, Any], wanted: dict[str, Any], vmi: VirtualMachineInstance
) -> tuple[dict[str, Any], list[str]]:
    """The operations by their paths, and why a restart is needed."""
    found = liveupdate.update(
        liveupdate.Change(
            from_plain(started, VirtualMachineInstanceSpec), from_plain(wanted, VirtualMachineInstanceSpec), vmi, 2
        )
    )
    return {each["path"]: each.get("value") for each in found.operations}, found.restart


def test_a_card_that_the_template_gets_is_plugged_in() -> None:
    found, restart = change(spec(), spec(card()), machine())
    assert [nic["name"] for nic in found["/spec/domain/devices/interfaces"]] == ["default", "blue"]
    assert [net["name"] for net in found["/spec/networks"]] == ["default", "blue"]
    assert restart == []


def test_a_card_of_another_kind_waits_for_a_restart() -> None:
    found, restart = change(spec(), spec(card(sriov={}) | {"bridge": None}), machine())
    assert "/spec/domain/devices/interfaces" not in found
    assert "interfaces" in restart[0]


def test_absent_pulls_a_card_also_one_of_the_start() -> None:
    found, restart = change(spec(card()), spec(card(state="absent")), machine(card()))
    assert found["/spec/domain/devices/interfaces/1/state"] == "absent"
    assert restart == []


def test_a_card_that_went_and_was_forgotten_needs_no_restart() -> None:
    found, restart = change(spec(card()), spec(), machine())
    assert restart == []
    assert "/spec/networks" not in found


def test_a_card_that_the_template_only_drops_says_how_it_goes() -> None:
    _, restart = change(spec(card()), spec(), machine(card()))
    assert any('the state "absent" removes it' in reason for reason in restart)
    _, restart = change(spec(), spec(), machine(card()))
    assert any('the state "absent" removes it' in reason for reason in restart), "also one that was plugged in later"


def test_another_network_comes_by_a_move() -> None:
    found, restart = change(spec(card()), spec(card(), definition="red-net"), machine(card(), movable=True))
    assert found["/spec/networks/1/multus"] == {"networkName": "red-net"}
    assert restart == []
    _, restart = change(
        spec(card()), spec(card(macAddress="02:00:00:00:00:07"), definition="red-net"), machine(card(), movable=True)
    )
    assert restart, "a card that changes as well is another card"


def test_another_network_or_mac_waits_for_a_restart() -> None:
    """Of a machine that cannot move."""
    _, restart = change(spec(card()), spec(card(), definition="red-net"), machine(card()))
    assert "networks" in restart[0]
    _, restart = change(spec(card()), spec(card(macAddress="02:00:00:00:00:07")), machine(card()))
    assert "interfaces" in restart[0]


def test_a_link_of_a_plugged_card_follows() -> None:
    found, restart = change(spec(), spec(card(state="down")), machine(card()))
    assert found["/spec/domain/devices/interfaces/1/state"] == "down"
    assert restart == []


def vm(*cards: dict[str, Any]) -> VirtualMachine:
    return from_plain({"metadata": {"name": "m"}, "spec": {"template": {"spec": spec(*cards)}}}, VirtualMachine)


def test_what_is_gone_for_good_is_forgotten() -> None:
    gone, template = machine(card(state="absent")), vm(card(state="absent"))
    assert [each["path"] for each in nics.pruned_vmi(gone)] == ["/spec/domain/devices/interfaces", "/spec/networks"]
    pruned = nics.pruned_template(template, gone)
    assert [each["path"] for each in pruned] == [
        "/spec/template/spec/domain/devices/interfaces",
        "/spec/template/spec/networks",
    ]
    assert [nic["name"] for nic in pruned[0]["value"]] == ["default"]
    assert nics.pruned_template(template, None) == pruned, "also of a VM that does not run"


def test_what_somebody_still_knows_of_stays() -> None:
    held = machine(card(state="absent"), shown=("default", "blue"))
    assert nics.pruned_vmi(held) == nics.pruned_template(vm(card(state="absent")), held) == []
    untold = machine(card())
    assert nics.pruned_template(vm(card(state="absent")), untold) == [], "the machine has not been told yet"
