"""Whom the rules at a guest's TAP take it for."""

from __future__ import annotations

import json

import pytest

from virt_core.apis.netplan import NetPlan, NetPlanInterface
from virt_netsetup import compose, guard
from virt_netsetup.linksteps import AddTap
from virt_netsetup.model import Address, PodNic
from virt_netsetup.steps import InstallTables, StartDhcp
from virt_netsetup.tables import Table

MAC = "0a:58:0a:63:00:05"
IPV4, IPV6 = Address(ip="10.99.0.5", prefix=24), Address(ip="fd99::5", prefix=64)


def rules(binding: str, *addresses: Address, mac: str = "", name: str = "eth0") -> Table:
    interface = NetPlanInterface(name="default", binding=binding, mac=mac)
    plan = NetPlan(vmi_uid="uid-1", pod_pid=1, state_dir="/state", interfaces=[interface])
    nic = PodNic(index=2, name=name, mac=MAC, mtu=1450, addresses=addresses)
    steps = compose.setup(plan, interface, nic, 0).steps
    [installed] = [step for step in steps if isinstance(step, InstallTables)]
    position = steps.index(installed)
    assert any(isinstance(step, AddTap) for step in steps[:position]), "rules need their device"
    assert not any(isinstance(step, StartDhcp) for step in steps[:position]), "nothing serves before the rules stand"
    [table] = [table for table in installed.tables if table.family == "netdev"]
    return table


def words(table: Table, chain: str) -> str:
    return json.dumps([rule for name, rule in table.rules if name == chain])


@pytest.mark.parametrize(("name", "tap"), [("eth0", "tap0"), ("pod37a8eec1ce1", "tap37a8eec1ce1")])
def test_rules_stand_at_the_tap_and_drop_what_they_do_not_know(name: str, tap: str) -> None:
    base = rules("bridge", IPV4, name=name).chains[0]
    assert (base.hook, base.device, base.policy, base.kind) == ("ingress", tap, "drop", "filter")


def test_a_bridged_guest_is_its_pod() -> None:
    table = rules("bridge", IPV4, IPV6)
    assert MAC in words(table, "from_guest")
    assert "10.99.0.5" in words(table, "arp")
    assert "10.99.0.5" in words(table, "ipv4")
    assert "fd99::5" in words(table, "ipv6")
    assert "fe80::858:aff:fe63:5" in words(table, "ipv6")
    assert "prefix" not in words(table, "ipv6"), "on a network with neighbours one link-local address is enough"


def test_a_masqueraded_guest_has_the_addresses_behind_the_nat() -> None:
    table = rules("masquerade", IPV4, IPV6, mac="02:11:22:33:44:55")
    assert "02:11:22:33:44:55" in words(table, "from_guest")
    assert "10.0.2.2" in words(table, "ipv4")
    assert "10.99.0.5" not in words(table, "ipv4")
    assert "fd10:0:2::2" in words(table, "ipv6")
    assert "fe80::ff:fe00:0" in words(table, "ipv6"), "its router's address is not its own"


@pytest.mark.parametrize("binding", ["masquerade", "bridge"])
def test_a_family_that_the_pod_has_not_is_closed(binding: str) -> None:
    assert "accept" not in words(rules(binding, IPV6), "ipv4")
    assert "accept" not in words(rules(binding, IPV6), "arp")
    assert "fd" not in words(rules(binding, IPV4), "ipv6")


def test_without_any_address_only_the_mac_is_known() -> None:
    """A network that gives no addresses leaves them to the guest; it may still play neither router nor DHCP server."""
    table = rules("bridge")
    for chain in ("arp", "ipv4", "ipv6"):
        assert words(table, chain).endswith('[{"accept": null}]]')
    assert "nd-router-advert" in words(table, "ipv6")
    assert "67" in words(table, "ipv4")


def test_address_of_a_mac() -> None:
    assert guard.link_local("02:11:22:33:44:55") == "fe80::11:22ff:fe33:4455"
