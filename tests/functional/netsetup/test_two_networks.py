"""A Pod with its own network and another one beside it, both wired for a guest; and a NIC that comes and goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import frames as f
from .lab import Lab
from .test_isolation import SENDER, WATCHER, Guest, lies, truths
from .test_netsetup import interface

pytestmark = pytest.mark.root
SECOND, SECOND_MAC = "pod37a8eec1ce1", "0a:58:0a:63:01:05"
TAP, BRIDGE = "tap37a8eec1ce1", "k6t-37a8eec1ce1"
GUEST = "02:77:22:33:44:55"


def plug_second(lab: Lab, address: str = "") -> None:
    """What a CNI plugin does for a secondary network; without an address it is one without IPAM."""
    lab.ip(lab.outside, "link", "add", "to-second", "type", "veth", "peer", "name", SECOND, "netns", lab.pod)
    lab.ip(lab.pod, "link", "set", SECOND, "address", SECOND_MAC, "mtu", "1300", "up")
    lab.ip(lab.outside, "link", "set", "to-second", "up")
    if address:
        lab.ip(lab.pod, "addr", "add", address, "dev", SECOND)


def second(**more: Any) -> dict[str, Any]:
    return {"name": "second", "binding": "bridge", "podInterface": SECOND, "mac": GUEST, **more}


def both(**more: Any) -> list[dict[str, Any]]:
    return [*interface("masquerade"), second(**more)]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "state") as made:
        yield made


def test_a_second_network_without_addresses(lab: Lab) -> None:
    plug_second(lab)
    before = lab.snapshot()
    report = lab.netsetup("setup", both())["interfaces"]
    assert report[1] == {
        "name": "second", "tap": TAP, "mac": GUEST, "mtu": 1300, "bridge": BRIDGE, "podInterface": SECOND,
    }  # fmt: skip
    assert len(lab.servers()) == 1, "where no addresses are given nobody hands any out"
    tap = json.loads(lab.ip(lab.pod, "-j", "-d", "link", "show", TAP))[0]
    assert (tap["mtu"], tap["master"]) == (1300, BRIDGE)
    assert lab.netsetup("check", both())["interfaces"] == report
    lab.netsetup("teardown", [])
    assert lab.snapshot() == before


def test_a_second_network_with_addresses(lab: Lab, tmp_path: Path) -> None:
    plug_second(lab, "10.97.0.5/24")
    lab.ip(lab.outside, "addr", "add", "10.97.0.1/24", "dev", "to-second")
    report = lab.netsetup("setup", both())["interfaces"]
    assert report[1]["podIps"] == ["10.97.0.5"]
    assert "169.254.75.11/32" in lab.ip(lab.pod, "-o", "addr", "show", "dev", BRIDGE)
    assert len(lab.servers()) == 2
    lab.plug_guest(mac=GUEST, tap=TAP)
    told = lab.lease(tmp_path / "client.sh")
    assert (told["ip"], told["mask"], told["mtu"]) == ("10.97.0.5", "24", "1300")
    assert "router" not in told, "the way out is that of the first network"
    lab.listen(lab.guest, 9001, "0.0.0.0")
    assert lab.connect(lab.outside, "10.97.0.5", 9001) == "10.97.0.1"


def test_a_nic_comes_and_goes_and_the_first_one_stays(lab: Lab, tmp_path: Path) -> None:
    lab.netsetup("setup", interface("masquerade"))
    alone, servers = lab.snapshot(), lab.servers()
    plug_second(lab, "10.97.0.5/24")
    lab.netsetup("setup", both())
    assert set(servers) < set(lab.servers()), "the first server was not touched"
    lab.plug_guest(mac=GUEST, tap=TAP)
    assert lab.lease(tmp_path / "client.sh")["ip"] == "10.97.0.5"
    # As the machine lets go of its TAP.
    lab.children.pop().kill()
    lab.netsetup("setup", interface("masquerade"))
    assert lab.servers() == servers
    nic = json.loads(lab.ip(lab.pod, "-j", "addr", "show", SECOND))[0]
    assert nic["address"] == SECOND_MAC, "given back as the plugin made it"
    assert [a["local"] for a in nic["addr_info"] if a["family"] == "inet"] == ["10.97.0.5"]
    lab.ip(lab.outside, "link", "del", "to-second")
    assert lab.snapshot() == alone


def test_a_nic_that_the_pod_lost_first_is_forgotten(lab: Lab) -> None:
    lab.netsetup("setup", interface("masquerade"))
    alone = lab.snapshot()
    plug_second(lab)
    lab.netsetup("setup", both())
    lab.ip(lab.outside, "link", "del", "to-second")
    lab.netsetup("setup", interface("masquerade"))
    assert lab.snapshot() == alone


def test_numbers_stay_whoever_goes(lab: Lab) -> None:
    """The address of a NIC's DHCP server follows from its number; another one's end must not move it."""
    plug_second(lab, "10.97.0.5/24")
    lab.ip(lab.outside, "link", "add", "to-third", "type", "veth", "peer", "name", "podthird", "netns", lab.pod)
    lab.ip(lab.pod, "link", "set", "podthird", "up")
    lab.ip(lab.pod, "addr", "add", "10.96.0.5/24", "dev", "podthird")
    third = {"name": "third", "binding": "bridge", "podInterface": "podthird"}
    lab.netsetup("setup", [*both(), third])
    servers = lab.servers()
    lab.netsetup("setup", [*interface("masquerade"), third])
    addresses = lab.ip(lab.pod, "-o", "-4", "addr", "show", "dev", "k6t-third")
    assert "169.254.75.12/32" in addresses
    assert "169.254.75.11/32" not in addresses
    assert len(set(servers) & set(lab.servers())) == 2, "the third one's server was not touched"


def test_a_guest_of_the_second_network_is_held_to_its_mac(lab: Lab) -> None:
    """Without given addresses it may use any, but only under its own MAC, and serves nobody DHCP."""
    plug_second(lab)
    lab.netsetup("setup", both())
    lab.plug_guest(mac=GUEST, tap=TAP)
    peer = lab.inside(lab.outside, "cat", "/sys/class/net/to-second/address").strip()
    watcher = lab.start(lab.outside, WATCHER, arguments=("to-second",))
    packet = f.ipv4("10.97.0.9", "10.97.0.1", f.udp(5000, 9, b"payload of a frame"))
    lies = {
        "another MAC": f.ethernet("02:66:66:66:66:66", peer, 0x0800, packet),
        "an ARP reply with another MAC": f.arp(GUEST, f.ARP_REPLY, "02:66:66:66:66:66", "10.97.0.9", "10.97.0.1"),
        "a DHCP offer": f.ethernet(
            GUEST, f.BROADCAST, 0x0800, f.ipv4("10.97.0.9", "255.255.255.255", f.udp(67, 68, b"an offer of a lease"))
        ),
        "another VLAN": f.tagged(f.ethernet(GUEST, peer, 0x0800, packet), 7),
    }
    assert watcher.stdout is not None
    for name, frame in lies.items():
        mark = f.ipv4("10.97.0.9", "10.97.0.1", f.udp(5000, 9, f"mark after {name}".encode()))
        honest = f.ethernet(GUEST, peer, 0x0800, mark)
        lab.inside(lab.guest, sys.executable, "-c", SENDER, frame.hex(), honest.hex())
        for line in iter(watcher.stdout.readline, ""):
            assert frame[-16:].hex() not in line or mark.hex() in line, name
            if mark.hex() in line:
                break


class SecondGuest(Guest):
    """The guest on the second network, which gives addresses of both families."""

    def __post_init__(self) -> None:
        self.mac, self.link_local = GUEST, "fe80::77:22ff:fe33:4455"
        self.peer = self.lab.inside(self.lab.outside, "cat", "/sys/class/net/to-second/address").strip()
        self.ip4, self.gateway4, self.foreign4 = "10.97.0.5", "10.97.0.1", "10.97.0.77"
        self.ip6, self.gateway6, self.foreign6 = "fd97::5", "fd97::1", "fd97::77"
        self._watcher = self.lab.start(self.lab.outside, WATCHER, arguments=("to-second",))


def test_a_guest_of_the_second_network_is_held_to_its_addresses(lab: Lab) -> None:
    plug_second(lab, "10.97.0.5/24")
    lab.ip(lab.pod, "addr", "add", "fd97::5/64", "dev", SECOND, "nodad")
    lab.netsetup("setup", both())
    lab.plug_guest(mac=GUEST, tap=TAP)
    lab.ip(lab.guest, "link", "set", "eth0", "arp", "off")
    guest = SecondGuest(lab, "bridge")
    assert [name for name, frame in lies(guest).items() if guest.gets_out(frame)] == []
    # Its frames are smaller than those of the first one.
    honest = {name: frame for name, frame in truths(guest).items() if len(frame) < 1300}
    assert [name for name, frame in honest.items() if not guest.gets_out(frame)] == []


def test_nobody_gets_through_the_pod(lab: Lab) -> None:
    """Masquerade makes the Pod a router. A neighbour on the second network that sends to the Pod's own MAC must not get
    into the Pod network by that, under whatever address."""
    plug_second(lab)
    lab.netsetup("setup", both())
    inside = lab.inside(lab.pod, "cat", f"/sys/class/net/{BRIDGE}/address").strip()
    watcher = lab.start(lab.outside, WATCHER, arguments=("to-pod",))
    sender = SENDER.replace("eth0", "to-second")
    intruder = f.ethernet(
        "02:66:66:66:66:66", inside, 0x0800, f.ipv4("10.97.0.9", "10.99.0.1", f.udp(5000, 9, b"let me through"))
    )
    lab.inside(lab.outside, sys.executable, "-c", sender, intruder.hex())
    # Sent after it on the way that is open: what is seen before this is what got through.
    lab.inside(lab.pod, sys.executable, "-c", BEACON)
    assert watcher.stdout is not None
    for line in iter(watcher.stdout.readline, ""):
        assert b"let me through".hex() not in line
        if b"the last one".hex() in line:
            return


BEACON = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"the last one", ("10.99.0.1", 9))
"""


def test_a_macvlan_has_nothing_for_a_guest(lab: Lab) -> None:
    lab.ip(lab.pod, "link", "add", "below", "type", "veth", "peer", "name", "below-peer")
    lab.ip(lab.pod, "link", "add", SECOND, "link", "below", "type", "macvlan", "mode", "bridge")
    before = lab.snapshot()
    report = lab.netsetup("setup", both(), check=False)
    assert report["error"]["critical"]
    assert "takes frames for its own MAC only" in report["error"]["message"]
    assert lab.snapshot() == before
