"""What virt-netsetup sees of a guest's way to the network, in real namespaces, with guests broken in many ways."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import frames as f
from .lab import GUEST_MAC, POD_MAC, Lab, eventually
from .test_isolation import OTHER_MAC, SENDER
from .test_netsetup import interface
from .test_two_networks import GUEST, SECOND, TAP, both, plug_second

pytestmark = pytest.mark.root
MACS = {"masquerade": GUEST_MAC, "bridge": POD_MAC}
OWN = {"masquerade": "10.0.2.2", "bridge": "10.99.0.5"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "state") as made:
        yield made


def wish(binding: str) -> list[dict[str, Any]]:
    return interface(binding, mac=GUEST_MAC if binding == "masquerade" else "")


def wired(lab: Lab, binding: str) -> None:
    lab.netsetup("setup", wish(binding))
    lab.plug_guest(mac=MACS[binding])


def observe(lab: Lab, binding: str) -> dict[str, Any]:
    found: dict[str, Any] = lab.netsetup("observe", wish(binding))["observed"][0]
    return found


def answers(found: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(probe["kind"], probe["ip"]): probe.get("mac", "") for probe in found.get("probes", [])}


@pytest.mark.parametrize("binding", ["masquerade", "bridge"])
def test_a_guest_that_took_its_lease(lab: Lab, tmp_path: Path, binding: str) -> None:
    wired(lab, binding)
    before = lab.snapshot()
    assert observe(lab, binding)["counters"]["lease_given"] == 0
    assert lab.lease(tmp_path / "client.sh")["ip"] == OWN[binding]
    found = observe(lab, binding)
    assert "error" not in found
    assert "missing" not in found
    assert found["serves"] is True
    assert found["counters"]["lease_asked"] >= 2, "to discover and to request"
    assert (found["counters"]["lease_given"], found["counters"]["lease_refused"]) == (1, 0), "an offer is no lease"
    assert answers(found)["arp", OWN[binding]] == MACS[binding]
    if binding == "masquerade":
        assert answers(found)["echo", OWN[binding]] == MACS[binding]
    assert found["tap"]["carrier"]
    assert found["tap"]["rxPackets"] > 0
    assert found["learnt"] == [MACS[binding]]
    assert found["wired"]["podIps"][0] == "10.99.0.5"
    assert lab.snapshot() == before, "to look changes nothing"


@pytest.mark.parametrize("binding", ["masquerade", "bridge"])
def test_a_guest_with_ipv6(lab: Lab, binding: str) -> None:
    wired(lab, binding)
    own = {"masquerade": "fd10:0:2::2", "bridge": "fd99::5"}[binding]
    lab.ip(lab.guest, "addr", "add", f"{own}/64", "dev", "eth0", "nodad")
    assert answers(observe(lab, binding))["nd", own] == MACS[binding]


def test_nobody_holds_the_tap(lab: Lab) -> None:
    lab.netsetup("setup", wish("masquerade"))
    found = observe(lab, "masquerade")
    assert "carrier" not in found["tap"]
    assert "rxPackets" not in found["tap"]
    assert not any(answers(found).values())


def test_a_guest_that_took_no_address(lab: Lab) -> None:
    wired(lab, "masquerade")
    found = observe(lab, "masquerade")
    assert not any(answers(found).values())
    assert (found["counters"]["lease_asked"], found["counters"]["lease_given"]) == (0, 0)


@pytest.mark.parametrize("binding", ["masquerade", "bridge"])
def test_a_guest_with_an_address_of_its_own_choice(lab: Lab, binding: str) -> None:
    wired(lab, binding)
    lab.ip(lab.guest, "addr", "add", "10.66.66.66/8", "dev", "eth0")
    lab.start(lab.guest, CHATTER)
    found = eventually_found(lab, binding, "dropped_arp")
    assert "10.66.66.66" in found["heard"]
    assert not answers(found)["arp", OWN[binding]]


def eventually_found(lab: Lab, binding: str, counter: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def counted() -> bool:
        found.update(observe(lab, binding))
        return bool(found["counters"][counter])

    eventually(counted, within_s=20)
    return found


#: Asks for a neighbour without end.
CHATTER = """
import socket, time
print("ready", flush=True)
chatter = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
chatter.setblocking(False)
while True:
    for last in range(1, 200):
        try:
            chatter.sendto(b"hello", (f"10.66.66.{last}", 9))
        except OSError:
            pass
        time.sleep(0.05)
"""


def test_what_is_dropped_is_counted_by_its_reason(lab: Lab) -> None:
    wired(lab, "masquerade")
    gateway, guest = "02:00:00:00:00:00", GUEST_MAC
    packet = f.ipv4("10.0.2.2", "10.99.0.1", f.udp(5000, 9, b"x"))
    lies = {
        "dropped_mac": f.ethernet(OTHER_MAC, gateway, 0x0800, packet),
        "dropped_vlan": f.tagged(f.ethernet(guest, gateway, 0x0800, packet), 7),
        "dropped_other": f.ethernet(guest, gateway, 0x88CC, b"neighbours of another kind" * 3),
        "dropped_arp": f.arp(guest, f.ARP_REPLY, guest, "10.0.2.1", "10.0.2.9"),
        "dropped_ipv4": f.ethernet(guest, gateway, 0x0800, f.ipv4("10.66.0.1", "10.99.0.1", f.udp(1, 2, b"x"))),
        "dropped_ipv6": f.ethernet(guest, gateway, 0x86DD, f.ipv6("fd66::1", "fd99::1", f.udp(1, 2, b"x"))),
        "dropped_loopback": f.ethernet(guest, gateway, 0x0800, f.ipv4("10.0.2.2", "127.0.0.1", f.udp(1, 2, b"x"))),
        "dropped_server": f.ethernet(
            guest, f.BROADCAST, 0x0800, f.ipv4("10.0.2.2", "255.255.255.255", f.udp(67, 68, b"x"))
        ),
    }
    before = observe(lab, "masquerade")["counters"]
    lab.inside(lab.guest, sys.executable, "-c", SENDER, *(frame.hex() for frame in lies.values()))
    eventually(lambda: _grown(before, observe(lab, "masquerade")["counters"]) >= set(lies), within_s=20)


def _grown(before: dict[str, int], after: dict[str, int]) -> set[str]:
    return {name for name, count in after.items() if count > before[name]}


def test_a_guest_that_answers_under_another_mac(lab: Lab) -> None:
    """The rules would drop it; it is heard all the same."""
    wired(lab, "masquerade")
    lab.ip(lab.guest, "addr", "add", "10.0.2.2/24", "dev", "eth0")
    lab.ip(lab.guest, "link", "set", "eth0", "address", OTHER_MAC)
    assert answers(observe(lab, "masquerade"))["arp", "10.0.2.2"] == OTHER_MAC


def test_a_dead_server_and_missing_parts(lab: Lab) -> None:
    wired(lab, "masquerade")
    [server] = lab.servers()
    os.kill(server, signal.SIGKILL)
    eventually(lambda: not lab.servers())
    found = observe(lab, "masquerade")
    assert found["serves"] is False
    assert "missing" not in found
    lab.inside(lab.pod, "nft", "flush", "ruleset")
    found = observe(lab, "masquerade")
    assert found["missingStep"] == "InstallTables"
    assert "counters" not in found
    lab.ip(lab.pod, "link", "set", "k6t-eth0", "down")
    assert "k6t-eth0" in observe(lab, "masquerade")["missing"]


def test_a_nic_that_was_never_wired(lab: Lab) -> None:
    assert observe(lab, "masquerade")["error"] == "eth0 was never wired"
    [other] = lab.netsetup("observe", [{**wish("masquerade")[0], "podInterface": "net1"}])["observed"]
    assert other["error"].startswith("the Pod has no interface net1 (it has: ")


def test_each_nic_by_itself(lab: Lab, tmp_path: Path) -> None:
    """The second network has no addresses to give: nobody is asked there, but what the guest sends is counted."""
    plug_second(lab)
    lab.netsetup("setup", both())
    lab.plug_guest(mac=GUEST, tap=TAP)
    first, second = lab.netsetup("observe", both())["observed"]
    assert (first["pod"]["name"], second["wired"]["podInterface"]) == ("eth0", SECOND)
    assert "carrier" not in first["tap"]
    assert second["tap"]["carrier"]
    assert not second.get("probes")


def test_a_flood_does_not_hold_it_up(lab: Lab) -> None:
    """Nor does it fill the answer: the guest sends under a thousand addresses while it is looked at."""
    wired(lab, "masquerade")
    lab.start(lab.guest, FLOOD, arguments=(GUEST_MAC,))
    found = observe(lab, "masquerade")
    assert 0 < len(found["heard"]) <= 8


FLOOD = """
import os, socket, struct, sys
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("eth0", 0))
mac = bytes.fromhex(sys.argv[1].replace(":", ""))
print("ready", flush=True)
while True:
    sender = b"\\x0a" + os.urandom(3)
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + sender + bytes(6) + sender
    try:
        raw.send(b"\\xff" * 6 + mac + b"\\x08\\x06" + body)
    except OSError:
        pass
"""
