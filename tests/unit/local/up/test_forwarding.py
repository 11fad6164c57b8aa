"""Forwarding is turned on with care and put back by the last who needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from virt_local.up.forwarding import Switches


@pytest.fixture
def machine(tmp_path: Path) -> Switches:
    """One network card that listens to a router; everything off."""
    for name, value in {
        "ipv4/ip_forward": "0",
        "ipv6/conf/all/forwarding": "0",
        "ipv6/conf/all/accept_ra": "1",
        "ipv6/conf/eth0/accept_ra": "1",
        "ipv6/conf/static0/accept_ra": "0",
    }.items():
        (tmp_path / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / name).write_text(f"{value}\n")
    for device in ("eth0", "static0"):
        (tmp_path / "devices" / device).mkdir(parents=True)
    return Switches(tmp_path / "sys", tmp_path / "devices", tmp_path / "record.json")


def values(machine: Switches) -> dict[str, str]:
    files = (path for path in machine.sysctl.rglob("*") if path.is_file())
    return {str(path.relative_to(machine.sysctl)): path.read_text().strip() for path in files}


def test_what_was_off_is_off_again(machine: Switches) -> None:
    before = values(machine)
    machine.turn_on("a-br0")
    assert values(machine) == {
        "ipv4/ip_forward": "1",
        "ipv6/conf/all/forwarding": "1",
        "ipv6/conf/all/accept_ra": "1",
        "ipv6/conf/eth0/accept_ra": "2",
        "ipv6/conf/static0/accept_ra": "0",
    }
    assert machine.put_back() == ""
    assert values(machine) == before
    assert not machine.record.exists()


def test_what_was_on_stays_on(machine: Switches) -> None:
    (machine.sysctl / "ipv4/ip_forward").write_text("1\n")
    (machine.sysctl / "ipv6/conf/all/forwarding").write_text("1\n")
    before = values(machine)
    machine.turn_on("a-br0")
    machine.put_back()
    assert values(machine) == before
    assert not machine.record.exists()


def test_a_second_up_does_not_forget_how_it_was(machine: Switches) -> None:
    before = values(machine)
    machine.turn_on("a-br0")
    machine.turn_on("a-br0")
    machine.put_back()
    assert values(machine) == before


def test_the_last_one_puts_it_back(machine: Switches) -> None:
    """Another bridge is another instance, or somebody's containers."""
    before = values(machine)
    machine.turn_on("a-br0")
    (machine.devices / "b-br0" / "bridge").mkdir(parents=True)
    assert "b-br0" in machine.put_back()
    assert values(machine)["ipv4/ip_forward"] == "1"
    (machine.devices / "b-br0" / "bridge").rmdir()
    assert machine.put_back() == ""
    assert values(machine) == before


def test_a_card_that_was_pulled_out_meanwhile_is_no_trouble(machine: Switches) -> None:
    machine.turn_on("a-br0")
    (machine.sysctl / "ipv6/conf/eth0/accept_ra").unlink()
    machine.put_back()
    assert values(machine)["ipv4/ip_forward"] == "0"


def test_a_machine_without_ipv6(machine: Switches) -> None:
    (machine.sysctl / "ipv6/conf/all/forwarding").unlink()
    machine.turn_on("a-br0")
    assert values(machine)["ipv6/conf/eth0/accept_ra"] == "1"
    machine.put_back()
    assert values(machine)["ipv4/ip_forward"] == "0"


def test_a_bridge_that_did_without_it_before_does_without_it_again(machine: Switches) -> None:
    (machine.devices / "docker0" / "bridge").mkdir(parents=True)
    before = values(machine)
    machine.turn_on("a-br0")
    assert machine.put_back() == ""
    assert values(machine) == before


def test_the_own_bridge_is_not_taken_for_one_that_did_without(machine: Switches) -> None:
    """A second `up` after somebody turned the switch off; another instance goes down while this one runs."""
    (machine.devices / "a-br0" / "bridge").mkdir(parents=True)
    machine.turn_on("a-br0")
    assert "a-br0" in machine.put_back()
