"""A guest that lies about who it is: what it puts into its TAP, frame by frame, and what comes out of the Pod."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import frames as f
from .lab import GUEST_MAC, POD_MAC, Lab
from .test_netsetup import interface

pytestmark = pytest.mark.root
OTHER_MAC, BRIDGE_MAC = "02:66:66:66:66:66", "02:00:00:00:00:00"
ALL_NODES = "33:33:00:00:00:01"

#: Prints every frame that comes in at an interface, and those that leave it not.
WATCHER = """
import socket, sys
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.bind((sys.argv[1], 0))
print("ready", flush=True)
while True:
    frame, (_, _, kind, _, _) = raw.recvfrom(65536)
    if kind != socket.PACKET_OUTGOING:
        print(frame.hex(), flush=True)
"""
SENDER = """
import socket, sys
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("eth0", 0))
for frame in sys.argv[1:]:
    raw.send(bytes.fromhex(frame))
"""


@dataclass
class Guest:
    """A wired guest and an eye on what gets out of its TAP: for a bridged one in the Pod's network, for a masqueraded
    one, whose frames end in the Pod, at the bridge that they end in."""

    lab: Lab
    binding: str

    def __post_init__(self) -> None:
        masquerade = self.binding == "masquerade"
        self.mac = GUEST_MAC if masquerade else POD_MAC
        self.peer = BRIDGE_MAC if masquerade else self._outside_mac()
        self.ip4, self.gateway4 = ("10.0.2.2", "10.0.2.1") if masquerade else ("10.99.0.5", "10.99.0.1")
        self.ip6, self.gateway6 = ("fd10:0:2::2", "fd10:0:2::1") if masquerade else ("fd99::5", "fd99::1")
        self.foreign4 = "10.0.2.77" if masquerade else "10.99.0.77"
        self.foreign6 = "fd10:0:2::77" if masquerade else "fd99::77"
        self.link_local = "fe80::11:22ff:fe33:4455" if masquerade else "fe80::858:aff:fe63:5"
        where = (self.lab.pod, "k6t-eth0") if masquerade else (self.lab.outside, "to-pod")
        self._watcher = self.lab.start(where[0], WATCHER, arguments=(where[1],))

    def _outside_mac(self) -> str:
        return self.lab.inside(self.lab.outside, "cat", "/sys/class/net/to-pod/address").strip()

    def honest(self, data: bytes) -> bytes:
        return self.v4(self.ip4, f.udp(5000, 9, data))

    def v4(self, source: str, payload: bytes, target: str = "") -> bytes:
        return f.ethernet(self.mac, self.peer, 0x0800, f.ipv4(source, target or self.gateway4, payload))

    def v6(self, source: str, payload: bytes, following: int = f.UDP, target: str = "ff02::1") -> bytes:
        return f.ethernet(self.mac, ALL_NODES, 0x86DD, f.ipv6(source, target, payload, following))

    def gets_out(self, frame: bytes) -> bool:
        """Whether the frame is seen before an honest one that was sent after it."""
        mark = os.urandom(16)
        self.lab.inside(self.lab.guest, sys.executable, "-c", SENDER, frame.hex(), self.honest(mark).hex())
        seen = False
        for line in iter(self._watcher_line, ""):
            # The end of it: a socket shows frames without their VLAN tag.
            seen = seen or frame[-20:].hex() in line
            if mark.hex() in line:
                return seen
        raise AssertionError("the honest frame did not get out")

    def _watcher_line(self) -> str:
        assert self._watcher.stdout is not None
        return self._watcher.stdout.readline()


@pytest.fixture(params=["masquerade", "bridge", "managedTap"])
def guest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guest]:
    binding = str(request.param)
    with Lab(tmp_path / "state") as lab:
        lab.netsetup("setup", interface(binding, mac=GUEST_MAC if binding == "masquerade" else ""))
        lab.plug_guest(mac=GUEST_MAC if binding == "masquerade" else POD_MAC)
        lab.ip(lab.guest, "link", "set", "eth0", "arp", "off")
        yield Guest(lab, binding)


def lies(guest: Guest) -> dict[str, bytes]:
    mac, data = guest.mac, f.udp(5000, 9, b"lie")
    own6 = guest.ip6
    honest = f.ethernet(OTHER_MAC, guest.peer, 0x0800, f.ipv4(guest.ip4, guest.gateway4, data))
    return {
        "another MAC": honest,
        "another IPv4 address": guest.v4(guest.foreign4, data),
        "the gateway's IPv4 address": guest.v4(guest.gateway4, data, guest.foreign4),
        "IPv4 loopback as the sender": guest.v4("127.0.0.1", data),
        "IPv4 loopback as the target": guest.v4(guest.ip4, data, "127.0.0.1"),
        "no IPv4 address": guest.v4("0.0.0.0", data, "255.255.255.255"),
        "an ARP reply for another": f.arp(mac, f.ARP_REPLY, mac, guest.foreign4, guest.gateway4),
        "an ARP request as another": f.arp(mac, f.ARP_REQUEST, mac, guest.gateway4, guest.foreign4),
        "an ARP reply with another MAC": f.arp(mac, f.ARP_REPLY, OTHER_MAC, guest.ip4, guest.gateway4),
        "an ARP reply of nobody": f.arp(mac, f.ARP_REPLY, mac, "0.0.0.0", guest.gateway4),
        "a DHCP offer": guest.v4(guest.ip4, f.udp(67, 68, b"offer"), "255.255.255.255"),
        "another IPv6 address": guest.v6(guest.foreign6, data),
        "the gateway's IPv6 address": guest.v6(guest.gateway6, data),
        "no IPv6 address": guest.v6("::", data),
        "an advertisement of the gateway": guest.v6(own6, f.neighbour(f.ADVERT, guest.gateway6), f.ICMPV6),
        "an advertisement as the gateway": guest.v6(guest.gateway6, f.neighbour(f.ADVERT, guest.gateway6), f.ICMPV6),
        "a claim to the gateway's address": guest.v6("::", f.neighbour(f.SOLICIT, guest.gateway6), f.ICMPV6),
        "a router advertisement": guest.v6(guest.link_local, f.neighbour(f.ROUTER_ADVERT, "::"), f.ICMPV6),
        "a hidden router advertisement": guest.v6(guest.link_local, f.hidden_in_fragment(b""), f.FRAGMENT),
        "a redirect": guest.v6(guest.link_local, f.neighbour(f.REDIRECT, guest.foreign6), f.ICMPV6),
        "a DHCPv6 reply": guest.v6(guest.link_local, f.udp(547, 546, b"reply")),
        "another protocol": f.ethernet(mac, f.BROADCAST, 0x88B5, b"another protocol".ljust(46)),
        "another VLAN": f.tagged(guest.honest(b"tagged"), 7),
    }


def truths(guest: Guest) -> dict[str, bytes]:
    mac, data = guest.mac, f.udp(5000, 9, b"truth")
    return {
        "the largest packet": guest.v4(guest.ip4, f.udp(5000, 9, bytes(1400 - 28))),
        "DHCP": guest.v4("0.0.0.0", f.udp(68, 67, b"discover"), "255.255.255.255"),
        "an ARP request": f.arp(mac, f.ARP_REQUEST, mac, guest.ip4, guest.gateway4),
        "an ARP reply": f.arp(mac, f.ARP_REPLY, mac, guest.ip4, guest.gateway4),
        "an ARP probe": f.arp(mac, f.ARP_REQUEST, mac, "0.0.0.0", guest.ip4),
        "a move": f.rarp(mac),
        "IPv6": guest.v6(guest.ip6, data),
        "IPv6 from the link": guest.v6(guest.link_local, data),
        "a neighbour asked for": guest.v6(guest.ip6, f.neighbour(f.SOLICIT, guest.gateway6), f.ICMPV6),
        "an advertisement of itself": guest.v6(guest.ip6, f.neighbour(f.ADVERT, guest.ip6), f.ICMPV6),
        "a look for a twin": guest.v6("::", f.neighbour(f.SOLICIT, guest.ip6), f.ICMPV6),
        "a look for a twin on the link": guest.v6("::", f.neighbour(f.SOLICIT, guest.link_local), f.ICMPV6),
        "groups": guest.v6("::", f.neighbour(f.MLD_REPORT, "::"), f.ICMPV6),
        "DHCPv6": guest.v6(guest.link_local, f.udp(546, 547, b"solicit"), target="ff02::1:2"),
        "a piece of a packet": guest.v6(guest.ip6, f.struct.pack("!BBHI", f.UDP, 0, 1, 7) + data, f.FRAGMENT),
    }


def test_lies_stay_in_the_tap(guest: Guest) -> None:
    assert [name for name, frame in lies(guest).items() if guest.gets_out(frame)] == []


def test_the_truth_gets_out(guest: Guest) -> None:
    assert [name for name, frame in truths(guest).items() if not guest.gets_out(frame)] == []


def test_the_gateways_link_address_is_not_the_guests(tmp_path: Path) -> None:
    """A masqueraded guest may choose its own link-local address, but not that of its router."""
    with Lab(tmp_path / "state") as lab:
        lab.netsetup("setup", interface("masquerade"))
        lab.plug_guest()
        guest = Guest(lab, "masquerade")
        router = "fe80::ff:fe00:0"
        assert not guest.gets_out(guest.v6(router, f.udp(5000, 9, b"lie")))
        assert not guest.gets_out(guest.v6("::", f.neighbour(f.SOLICIT, router), f.ICMPV6))
        assert not guest.gets_out(guest.v6(guest.ip6, f.neighbour(f.ADVERT, router), f.ICMPV6))
        assert guest.gets_out(guest.v6("fe80::1234:5678:9abc:def0", f.udp(546, 547, b"truth")))


def test_the_pods_loopback_is_not_the_guests(tmp_path: Path) -> None:
    """The kernel would route it, for the Pod's own connections to the guest need that; they work on."""
    with Lab(tmp_path / "state") as lab:
        lab.netsetup("setup", interface("masquerade"))
        lab.plug_guest()
        lab.lease(tmp_path / "client.sh")
        lab.listen(lab.guest, 9001, "0.0.0.0")
        lab.listen(lab.pod, 9002, "127.0.0.1")
        # The guest has no loopback of its own any more, so that its packets go to the gateway.
        lab.ip(lab.guest, "link", "set", "lo", "down")
        lab.ip(lab.guest, "addr", "flush", "dev", "lo")
        lab.ip(lab.guest, "route", "del", "local", "127.0.0.0/8", "table", "local", check=False)
        lab.ip(lab.guest, "route", "add", "127.0.0.1/32", "via", "10.0.2.1", "src", "10.0.2.2")
        for name in ("all", "eth0"):
            lab.inside(lab.guest, "sysctl", "-w", f"net.ipv4.conf.{name}.route_localnet=1")
        assert lab.connect(lab.guest, "127.0.0.1", 9002) == ""
        assert lab.connect(lab.pod, "127.0.0.1", 9001) == "10.0.2.1"


def test_the_pods_ipv6_loopback_is_not_the_guests(tmp_path: Path) -> None:
    """Neither by its address, which the guest routes to its gateway, nor by the gateway's own."""
    with Lab(tmp_path / "state") as lab:
        lab.netsetup("setup", interface("masquerade"))
        lab.plug_guest()
        lab.ip(lab.guest, "addr", "add", "fd10:0:2::2/120", "dev", "eth0", "nodad")
        lab.listen(lab.pod, 9002, "::1")
        lab.listen(lab.pod, 9003, "fd10:0:2::1")
        lab.ip(lab.guest, "link", "set", "lo", "down")
        lab.ip(lab.guest, "addr", "flush", "dev", "lo")
        lab.ip(lab.guest, "-6", "route", "del", "local", "::1", "table", "local", check=False)
        lab.ip(lab.guest, "-6", "route", "add", "::1/128", "via", "fd10:0:2::1", "dev", "eth0")
        assert lab.connect(lab.guest, "fd10:0:2::1", 9003) == "fd10:0:2::2", "the way to the Pod is open"
        assert lab.connect(lab.guest, "::1", 9002) == ""


#: Opens a TAP of this network as a user, without any right.
OPEN_TAP = """
import fcntl, os, struct, sys
device = os.open("/dev/net/tun", os.O_RDWR)
os.setgroups([])
os.setresgid(*[int(sys.argv[2])] * 3)
os.setresuid(*[int(sys.argv[2])] * 3)
try:
    fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", sys.argv[1].encode(), 0x0002 | 0x1000 | 0x4000))
    print("opened")
except PermissionError:
    print("refused")
"""


@pytest.mark.parametrize("binding", ["masquerade", "bridge"])
def test_another_pods_tap_cannot_be_had(tmp_path: Path, binding: str) -> None:
    """A launcher that was taken over, in the network of its own Pod: the TAP of a neighbour's guest is not there,
    though it has the same name, and one that another user owns is not opened."""
    with Lab(tmp_path / "state") as lab, Lab(tmp_path / "other") as other:
        for each, uid in ((lab, 107), (other, 208)):
            each.netsetup("setup", interface(binding, mac=GUEST_MAC), launcherUid=uid)
        opens = lambda where, uid: where.inside(where.pod, sys.executable, "-c", OPEN_TAP, "tap0", uid).strip()  # noqa: E731
        assert [opens(lab, "107"), opens(other, "208")] == ["opened", "opened"]
        assert [opens(lab, "208"), opens(other, "107")] == ["refused", "refused"]
        watcher = other.start(other.pod, WATCHER, arguments=("tap0",))
        lab.plug_guest()
        lab.inside(
            lab.guest, sys.executable, "-c", SENDER, f.arp(GUEST_MAC, 1, GUEST_MAC, "10.0.2.2", "10.0.2.1").hex()
        )
        other.plug_guest(mac=OTHER_MAC)
        mark = f.ethernet(OTHER_MAC, f.BROADCAST, 0x88B5, b"the neighbour's own".ljust(46))
        other.inside(other.guest, sys.executable, "-c", SENDER, mark.hex())
        assert watcher.stdout is not None
        for line in iter(watcher.stdout.readline, ""):
            assert GUEST_MAC.replace(":", "") not in line[12:24]
            if mark.hex() in line:
                return


def test_two_tenants(tmp_path: Path) -> None:
    """A bridged guest that answers for its neighbour's address gets none of its neighbour's traffic."""
    with Lab(tmp_path / "state") as lab:
        lab.netsetup("setup", interface("bridge", mac=""))
        lab.plug_guest(mac=POD_MAC)
        guest = Guest(lab, "bridge")
        lab.ip(lab.outside, "neigh", "replace", "10.99.0.77", "lladdr", OTHER_MAC, "dev", "to-pod", "nud", "stale")
        steal = f.arp(POD_MAC, f.ARP_REPLY, POD_MAC, "10.99.0.77", "10.99.0.1")
        assert not guest.gets_out(steal)
        assert OTHER_MAC in lab.ip(lab.outside, "neigh", "show", "10.99.0.77")


def test_rules_leave_with_the_guest(tmp_path: Path) -> None:
    with Lab(tmp_path / "state") as lab:
        lab.netsetup("setup", interface("bridge", mac=""))
        assert "hook ingress" in lab.inside(lab.pod, "nft", "list", "ruleset")
        lab.inside(lab.pod, "nft", "delete", "table", "netdev", "virtpod_eth0")
        report = lab.netsetup("check", interface("bridge", mac=""), check=False)
        assert report["error"]["step"] == "InstallTables"
        lab.netsetup("setup", interface("bridge", mac=""))
        lab.netsetup("teardown", [])
        assert lab.inside(lab.pod, "nft", "list", "ruleset") == ""
