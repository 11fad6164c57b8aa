"""Bindings beside masquerade and bridge: a real guest by passt, and by the plugins of the cluster's configuration."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

from .conftest import Configure, Space, admitted
from .console import Console
from .engine import eventually
from .manifests import kernel_boot
from .test_secondary_networks import consoles, no_dhcp, reaches

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.patient]
TCP, UDP = 8080, 7
PORTS = [{"port": TCP}, {"port": UDP, "protocol": "UDP"}]


def bound(name: str, **nic: Any) -> dict[str, Any]:
    manifest = kernel_boot(name)
    manifest["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", **nic}]
    return manifest


def pod_of(space: Space, name: str) -> Any:
    (pod,) = space.engine.get("-n", space.namespace, "pods", "-l", f"vmi.kubevirt.io/id={name}")["items"]
    return pod


def has(console: Console, address: str, card: str = "eth0") -> None:
    eventually(lambda: f"inet {address}/" in console.shell(f"ip -4 addr show {card}"), within_s=60, what=address)


def answers_udp(address: str) -> None:
    """A datagram to the guest's echo server, and back. From this machine: the guest's own nc knows TCP only."""

    def ask() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(2)
            client.sendto(b"ping", (address, UDP))
            return client.recv(100) == b"ping"

    eventually(ask, within_s=60, what=f"UDP from {address}")


def answers_tcp(console: Console, address: str, name: str) -> None:
    ask = f"echo who | nc -w 5 {address} {TCP}"
    eventually(lambda: f"{name} who" in console.shell(ask), within_s=60, what=f"TCP from {address}")


def test_a_guest_by_passt_has_the_address_of_its_pod_and_is_reached(space: Space) -> None:
    """From a guest in another Pod, and the other way; what is not in its list of ports is nobody's."""
    space.apply(bound("carried", passtBinding={}, ports=PORTS))
    space.apply(kernel_boot("peer"))
    told = space.ready("carried")["status"]["interfaces"][0]
    there = space.ready("peer")["status"]["interfaces"][0]["ipAddress"]
    pod = pod_of(space, "carried")
    assert told["ipAddress"] == pod["status"]["podIP"]
    with consoles(space, "carried", "peer") as (carried, peer):
        has(carried, told["ipAddress"])
        answers_tcp(peer, told["ipAddress"], "carried")
        answers_udp(told["ipAddress"])
        answers_tcp(carried, there, "peer")
        closed = peer.shell(f"nc -w 3 {told['ipAddress']} 22 </dev/null || echo closed-$((6*7))")
        assert "closed-42" in closed, "a port that is not listed"
    assert "LiveMigratable" in {each["type"] for each in space.vmi("carried")["status"]["conditions"]}


def test_a_guest_by_passt_does_not_reach_what_listens_on_the_loopback_of_its_pod(space: Space) -> None:
    space.boot(bound("curious", passtBinding={}, ports=PORTS))
    with consoles(space, "curious") as (console,):
        has(console, space.vmi("curious")["status"]["interfaces"][0]["ipAddress"])
        route = re.search(r"default via (\S+)", console.shell("ip -4 route"))
        assert route is not None
        # passt itself listens on all addresses of the Pod, its loopback among them, and would answer from there.
        assert not re.search("(curious|guest) who", console.shell(f"echo who | nc -w 3 {route[1]} {TCP}"))


def test_all_ports_by_passt_or_a_reason(space: Space) -> None:
    """How many files a process may open is the node's affair; where it is too few, the VMI says so, with the field."""
    space.apply(bound("greedy", passtBinding={}))

    def told() -> Any:
        status = space.vmi("greedy").get("status", {})
        words = [each.get("message", "") for each in status.get("conditions", [])]
        few = any("interfaces[0].ports: to take all ports passt opens up to" in each for each in words)
        return "few" if few else status.get("phase") == "Running" and "all"

    if eventually(told, within_s=90, what="the guest runs, or the VMI says why not") == "all":
        space.apply(kernel_boot("peer"))
        space.ready("peer")
        with consoles(space, "greedy", "peer") as (_, peer):
            answers_tcp(peer, space.ready("greedy")["status"]["interfaces"][0]["ipAddress"], "greedy")


def test_a_guest_on_a_managed_tap(space: Space, configure: Configure) -> None:
    """virt-netsetup makes the TAP and nobody answers DHCP: the guest's address is its own affair, but it must be the
    one that its Pod was given. Without a word of the plugin's about migration it stays where it is."""
    configure({"network": {"binding": {"flat": {"domainAttachmentType": "managedTap"}}}})
    manifest = bound("flat", binding={"name": "flat"})
    eventually(lambda: admitted(space, manifest), within_s=10, what="the plugin is known")
    space.apply(manifest)
    space.apply(kernel_boot("peer"))
    told = space.ready("flat")["status"]
    address, mac = told["interfaces"][0]["ipAddress"], told["interfaces"][0]["mac"]
    there = space.ready("peer")["status"]["interfaces"][0]["ipAddress"]
    assert address == pod_of(space, "flat")["status"]["podIP"]
    with consoles(space, "flat", "peer") as (flat, peer):
        assert mac in flat.shell("cat /sys/class/net/eth0/address")
        assert f"inet {address}/" not in flat.shell("ip -4 addr show eth0"), "nobody told the guest"
        no_dhcp(flat, "eth0")
        router = address.rpartition(".")[0] + ".1"
        flat.shell(f"ip addr add {address}/24 dev eth0; ip link set eth0 up; ip route add default via {router}")
        reaches(peer, address, "guest")  # Without DHCP nobody told it its name.
        answers_udp(address)
        answers_tcp(flat, there, "peer")
        flat.shell(
            f"ip addr flush dev eth0; ip addr add {router[:-1]}77/24 dev eth0; ip route add default via {router}"
        )
        assert "100% packet loss" in flat.shell(f"ping -c 3 -W 1 {router}"), "an address that is not its own"
    (moves,) = [each for each in space.vmi("flat")["status"]["conditions"] if each["type"] == "LiveMigratable"]
    assert (moves["status"], moves["reason"]) == ("False", "InterfaceNotLiveMigratable")
    assert "flat" in moves["message"]


def test_what_nobody_can_bind_is_refused_at_the_door(space: Space) -> None:
    assert "no network binding plugin 'smoke'" in space.refuse(bound("one", binding={"name": "smoke"}))
    assert "slirp is no longer supported; use masquerade" in space.refuse(bound("two", slirp={}))
    assert "macvtap is no longer supported; use bridge" in space.refuse(bound("three", macvtap={}))
    assert "dhcpOptions" in space.refuse(bound("four", passtBinding={}, dhcpOptions={"bootFileName": "x"}))
