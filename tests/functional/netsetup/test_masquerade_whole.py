"""Masquerade on the wire: each option of DHCP, a guest with IPv6 only, ports and their ranges, a mesh, packets of full
size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .ipv6client import ask
from .lab import MTU, POD_MAC, Lab, eventually, run
from .test_netsetup import interface

pytestmark = pytest.mark.root

OPTIONS = {
    "tftpServerName": "10.0.0.7",
    "bootFileName": "pxe/boot,1.efi",
    "ntpServers": ["10.0.0.8", "10.0.0.9"],
    "privateOptions": [
        {"option": 224, "value": "192.168.1.1"},
        {"option": 225, "value": "7"},
        {"option": 254, "value": 'a, "b" = c'},
    ],
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "state") as made:
        yield made


@pytest.fixture
def six(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "state", "6") as made:
        yield made


def give_ipv6(lab: Lab, told: dict[str, str]) -> None:
    """The address by hand; the way out its kernel has learned from the advertisement."""
    lab.ip(lab.guest, "addr", "add", f"{told['address']}/128", "dev", "eth0", "nodad")
    eventually(lambda: f"default via {told['router']}" in lab.ip(lab.guest, "-6", "route"))


@pytest.mark.parametrize("binding", ["masquerade", "bridge"])
def test_each_option_arrives_as_it_was_given(lab: Lab, tmp_path: Path, binding: str) -> None:
    mac = {"masquerade": {}, "bridge": {"mac": ""}}[binding]
    lab.netsetup("setup", interface(binding, dhcpOptions=OPTIONS, **mac))
    lab.plug_guest(**({} if binding == "masquerade" else {"mac": POD_MAC}))
    told = lab.lease(tmp_path / "client.sh")
    assert (told["tftp"], told["bootfile"], told["ntpsrv"]) == ("10.0.0.7", "pxe/boot,1.efi", "10.0.0.8 10.0.0.9")
    private = {name: bytes.fromhex(told[name]) for name in ("opt224", "opt225", "opt254")}
    assert private == {"opt224": b"192.168.1.1", "opt225": b"7", "opt254": b'a, "b" = c'}


def test_the_pods_routes_in_every_form(lab: Lab, tmp_path: Path) -> None:
    lab.ip(lab.pod, "route", "add", "192.0.2.7/32", "via", "10.99.0.3")
    lab.netsetup("setup", interface("bridge", mac=""))
    lab.plug_guest(mac=POD_MAC)
    told = lab.lease(tmp_path / "client.sh")
    pairs = told["staticroutes"].split()
    routes = dict(zip(pairs[::2], pairs[1::2], strict=True))
    assert routes == {"10.98.0.0/16": "10.99.0.2", "192.0.2.7/32": "10.99.0.3", "0.0.0.0/0": "10.99.0.1"}
    assert pairs[-2] == "0.0.0.0/0"
    assert told["msstaticroutes"] == told["staticroutes"]
    assert told["routes"] == "192.0.2.7/10.99.0.3", "the only one that needs no mask"


def test_a_guest_with_ipv6_only(six: Lab) -> None:
    six.netsetup("setup", interface("masquerade", vmIpv6NetworkCidr="fd77::/120"))
    six.plug_guest()
    told = ask(six)
    assert told == {
        "router": "fe80::ff:fe00:0", "router lifetime": 180, "managed": True, "mtu": MTU,
        "advertised dns": ["fd96::a"], "address": "fd77::2", "lifetime": 86313600,
        "dns": ["fd96::a"], "search": ["ns.svc.test", "svc.test"],
    }  # fmt: skip
    give_ipv6(six, told)
    for kind in ("tcp", "udp"):
        six.listen(six.outside, 9000, "::", kind)
        six.listen(six.guest, 9001, "::", kind)
    assert (six.connect(six.guest, "fd99::1", 9000), six.ask_udp(six.guest, "fd99::1", 9000)) == ("fd99::5",) * 2
    assert (six.connect(six.outside, "fd99::5", 9001), six.ask_udp(six.outside, "fd99::5", 9001)) == ("fd99::1",) * 2
    assert six.connect(six.pod, "::1", 9001) == "", "IPv6 has no way from loopback to another link"


def test_both_families_at_once(lab: Lab, tmp_path: Path) -> None:
    lab.netsetup("setup", interface("masquerade"))
    lab.plug_guest()
    assert lab.lease(tmp_path / "client.sh")["ip"] == "10.0.2.2"
    told = ask(lab)
    assert told["address"] == "fd10:0:2::2"
    give_ipv6(lab, told)
    for address, peer, pod in (("0.0.0.0", "10.99.0.1", "10.99.0.5"), ("::", "fd99::1", "fd99::5")):
        lab.listen(lab.guest, 9001, address, "udp")
        lab.listen(lab.outside, 9001, address, "udp")
        assert lab.ask_udp(lab.outside, pod, 9001) == peer
        for sender, receiver in ((lab.guest, peer), (lab.outside, pod)):
            assert lab.passes(sender, receiver, 9001, MTU), f"a full packet from {sender} to {receiver}"
            assert not lab.passes(sender, receiver, 9001, MTU + 1)


@pytest.mark.parametrize(("kind", "other"), [("tcp", "udp"), ("udp", "tcp")])
def test_a_range_of_ports(lab: Lab, tmp_path: Path, kind: str, other: str) -> None:
    lab.netsetup("setup", interface("masquerade", ports=[{"port": 9001, "last": 9003, "protocol": kind.upper()}]))
    lab.plug_guest()
    lab.lease(tmp_path / "client.sh")
    ask_one = {"tcp": lab.connect, "udp": lab.ask_udp}
    for port in (9000, 9001, 9003, 9004):
        lab.listen(lab.guest, port, "0.0.0.0", kind)
    lab.listen(lab.guest, 9002, "0.0.0.0", other)
    answers = [ask_one[kind](lab.outside, "10.99.0.5", port) for port in (9000, 9001, 9003, 9004)]
    assert answers == ["", "10.99.0.1", "10.99.0.1", ""]
    assert ask_one[other](lab.outside, "10.99.0.5", 9002) == "", "the range is of one protocol"


def test_a_mesh_stands_between(lab: Lab, tmp_path: Path) -> None:
    """The Pod's proxy takes what comes from outside; it reaches the guest by the Pod's address, and itself by its own
    ports. Only SSH goes past it."""
    lab.netsetup("setup", interface("masquerade", mesh=True))
    lab.plug_guest()
    lab.lease(tmp_path / "client.sh")
    for port in (22, 9001):
        lab.listen(lab.guest, port, "0.0.0.0")
    lab.listen(lab.pod, 15021, "127.0.0.1")
    assert lab.connect(lab.outside, "10.99.0.5", 22) == "10.99.0.1"
    assert lab.connect(lab.outside, "10.99.0.5", 9001) == "", "nobody forwards it but the proxy"
    assert lab.connect(lab.pod, "127.0.0.1", 15021) == "127.0.0.1"
    assert lab.connect(lab.pod, "127.0.0.1", 9001) == "10.0.2.1"
    proxied = (
        "import socket; c = socket.socket(); c.bind(('127.0.0.6', 0)); c.settimeout(3); "
        "c.connect(('10.99.0.5', 9001)); print(c.recv(100).decode())"
    )
    assert lab.inside(lab.pod, "python3", "-c", proxied).strip() == "10.0.2.1"


def test_rules_come_in_one_transaction(lab: Lab) -> None:
    """Whoever looks at the tables sees none of them or all: the kernel counts one generation for all three."""
    before = json.loads(run("ip", "netns", "exec", lab.pod, "nft", "-j", "list", "ruleset").stdout)
    assert len(before["nftables"]) == 1
    watcher = lab.start(lab.pod, MONITOR)
    lab.netsetup("setup", interface("masquerade", ports=[{"port": 80}]))
    assert watcher.stdin is not None
    assert watcher.stdout is not None
    watcher.stdin.write("\n")
    watcher.stdin.flush()
    generations = watcher.stdout.readline().split()
    assert len(generations) == 1, "one commit made all tables"


#: Prints the generations of rules that the kernel tells of, until it is asked.
MONITOR = """
import select, socket, struct, sys
told = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
told.bind((0, 0))
told.setsockopt(270, 1, 7)
print("ready", flush=True)
sys.stdin.readline()
found, told_all = [], b""
while select.select([told], [], [], 0.5)[0]:
    data = told.recv(1 << 20)
    while len(data) >= 16:
        length, kind = struct.unpack("=IH", data[:6])
        if kind == (10 << 8) | 15:
            found.append(str(length))
        data = data[(length + 3) & ~3:]
print(*found, flush=True)
"""
