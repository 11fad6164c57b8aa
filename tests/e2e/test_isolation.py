"""A real guest, root in itself, that attacks its neighbours, its Pod and the machine over the network."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from virt_core.apis.names import MOVE_PORTS
from virt_local.up.components import HANDLER_HEALTH_PORT
from virt_local.up.links import in_namespace

from .conftest import Space
from .console import Console
from .engine import VirtLocal, eventually
from .manifests import kernel_boot

pytestmark = pytest.mark.e2e
FOREIGN4, FOREIGN6 = "10.66.66.66", "fd66::66"

#: Prints the senders of what leaves by an interface.
SENDERS = """
import ipaddress, socket
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.bind(("eth0", 0))
print("ready", flush=True)
while True:
    frame, (_, kind, direction, _, _) = raw.recvfrom(65536)
    if direction == socket.PACKET_OUTGOING and kind in (0x0800, 0x86DD):
        place = slice(26, 30) if kind == 0x0800 else slice(22, 38)
        print(ipaddress.ip_address(frame[place]), flush=True)
"""
SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 9002))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"the Pod's own")
    connection.close()
"""


@contextmanager
def in_pod(space: Space, vmi: Any, code: str) -> Iterator[subprocess.Popen[str]]:
    """A program in the network of a guest's Pod."""
    pid = space.engine.launcher_pid(vmi["metadata"]["uid"])
    command = ["nsenter", "-t", str(pid), "-n", sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()


def lines_until(child: subprocess.Popen[str], last: str, within_s: float = 30) -> list[str]:
    seen: list[str] = []
    assert child.stdout is not None
    while last not in seen:
        assert select.select([child.stdout], [], [], within_s)[0], f"no {last} within {within_s} s; seen: {seen}"
        seen.append(child.stdout.readline().strip())
    return seen


def bridged(name: str) -> dict[str, Any]:
    manifest = kernel_boot(name)
    manifest["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "bridge": {}}]
    return manifest


def address_of(space: Space, name: str) -> str:
    found: list[str] = eventually(
        lambda: [nic["ipAddress"] for nic in space.vmi(name)["status"].get("interfaces", []) if nic.get("ipAddress")],
        within_s=60,
        what=f"an address of {name}",
    )
    return found[0]


def asks(console: Console, address: str, port: int) -> str:
    """What a server answers to the guest's `who`."""
    return console.shell(f"echo who | nc -w 5 {address} {port}")


def test_a_guest_cannot_take_its_neighbours_address(space: Space) -> None:
    for manifest in (kernel_boot("victim"), kernel_boot("witness"), bridged("thief")):
        space.apply(manifest)
    for name in ("victim", "witness", "thief"):
        space.ready(name)
    victim = address_of(space, "victim")
    with space.console("witness") as witness, space.console("thief") as thief:
        witness.prompt()
        thief.prompt()
        eventually(lambda: "victim who" in asks(witness, victim, 8080), within_s=60, what="an answer of the victim")
        thief.shell(f"ip addr add {victim}/32 dev eth0")
        thief.shell(f"arping -U -c 2 -I eth0 -s {victim} {victim}; arping -A -c 2 -I eth0 -s {victim} {victim}")
        for _ in range(3):
            answer = asks(witness, victim, 8080)
            assert "victim who" in answer
            assert "thief who" not in answer


def test_a_guest_speaks_under_its_own_address_only(space: Space) -> None:
    liar = space.boot(kernel_boot("liar"))
    own = address_of(space, "liar")
    with space.console("liar") as console, in_pod(space, liar, SENDERS) as wire, in_pod(space, liar, SERVER):
        console.prompt()
        eventually(
            lambda: "10.0.2.2" in console.shell("ip addr show dev eth0"), within_s=30, what="the guest's address"
        )
        console.shell(f"ip addr add {FOREIGN4}/32 dev eth0; ip -6 addr add {FOREIGN6}/128 dev eth0 nodad")
        console.shell("ip -6 route add default via fd10:0:2::1 dev eth0")
        console.shell(f"ping -c 2 -W 1 -I {FOREIGN4} 198.51.100.7; ping -6 -c 2 -W 1 -I {FOREIGN6} 2001:db8::7")
        console.shell("ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.1/32 via 10.0.2.1 src 10.0.2.2")
        console.shell("for each in all eth0; do echo 1 > /proc/sys/net/ipv4/conf/$each/route_localnet; done")
        assert "the Pod's own" not in asks(console, "127.0.0.1", 9002)
        console.shell("ping -c 2 -W 1 198.51.100.7")
        senders = lines_until(wire, own)
    assert not {FOREIGN4, FOREIGN6} & set(senders), senders


def test_a_guest_does_not_reach_the_machine(space: Space) -> None:
    """Nor virt-handler. The way out is open, and so is the guest to those who ask it."""
    engine = space.engine
    if not isinstance(engine, VirtLocal):
        pytest.skip("on Kubernetes this is a matter of network policies")
    prefix = engine.network.removesuffix(".0.0/16")
    space.boot(kernel_boot("curious"))
    own = address_of(space, "curious")
    with (
        socket.create_server(("0.0.0.0", 0)) as careless,
        socket.create_server((f"{prefix}.0.1", 53)),
        space.console("curious") as console,
    ):
        console.prompt()
        # What is open first: a guest that has no address yet reaches nothing, which proves nothing.
        eventually(lambda: connects(console, f"{prefix}.0.1 53"), within_s=60, what="the way to the open port")
        port = careless.getsockname()[1]
        for place in (f"{prefix}.0.1 {port}", f"{prefix}.0.1 {engine.port}", f"{prefix}.0.11 8186"):
            assert not connects(console, place), place
        assert "curious who" in eventually(lambda: who(own), within_s=30, what="an answer of the guest")


@pytest.mark.parametrize("binding", ["masquerade", "bridge"])
def test_a_guest_does_not_reach_what_serves_its_node(space: Space, binding: str) -> None:
    """Where machines that move come in, virt-handler's health and figures, the node's loopback. Behind masquerade,
    where the guest has an IPv6 address by itself, in both families."""
    engine = space.engine
    if not isinstance(engine, VirtLocal):
        pytest.skip("on Kubernetes this is a matter of network policies")
    prefix = engine.network.removesuffix(".0.0/16")
    node, second = f"{engine.instance}-node1", prefix.partition(".")[2]
    node6 = f"fd00:10:{second}:101::1"
    space.boot(kernel_boot("prowler") if binding == "masquerade" else bridged("prowler"))
    ports = (MOVE_PORTS[0], MOVE_PORTS[-1], HANDLER_HEALTH_PORT)
    with ExitStack() as stack:
        for port in ports[:2]:
            for place, kind in (("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)):
                stack.enter_context(in_namespace(node, partial(listener, place, port, kind)))
        for place in (f"{prefix}.0.11", f"{prefix}.101.1"):
            assert in_namespace(node, partial(answers, place, ports[0])), "somebody listens there"
        console = stack.enter_context(space.console("prowler"))
        stack.enter_context(socket.create_server((f"{prefix}.0.1", 53)))
        console.prompt()
        eventually(lambda: connects(console, f"{prefix}.0.1 53"), within_s=60, what="the way to the open port")
        near = [f"{prefix}.0.11", f"{prefix}.101.1"]
        if binding == "masquerade":
            near.append(node6)
            ping = lambda: "1 packets received" in console.shell(f"ping -6 -c 1 -W 2 {node6}")  # noqa: E731
            eventually(ping, within_s=60, what="the way by IPv6")
        closed = [f"{place} {port}" for place in near for port in ports]
        assert [place for place in closed if connects(console, place)] == []
        gateway = f"{prefix}.101.1" if binding == "bridge" else "10.0.2.1"
        console.shell(f"ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.1/32 via {gateway}")
        console.shell("for each in all eth0; do echo 1 > /proc/sys/net/ipv4/conf/$each/route_localnet; done")
        assert not connects(console, f"127.0.0.1 {HANDLER_HEALTH_PORT}")


def listener(place: str, port: int, kind: socket.AddressFamily) -> socket.socket:
    """Of one family only, so that there can be one of the other."""
    server = socket.socket(kind, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if kind == socket.AF_INET6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.bind((place, port))
    server.listen()
    return server


def answers(place: str, port: int) -> bool:
    with socket.create_connection((place, port), timeout=5):
        return True


def connects(console: Console, place: str) -> bool:
    """A server that says nothing keeps `nc` waiting; one that cannot be reached ends it with an error."""
    said = console.shell(f"timeout 6 nc -w 3 {place} >/dev/null 2>&1; echo co''de-$?-")
    assert "code-" in said, said
    return "code-1-" not in said


def who(address: str) -> str:
    with socket.create_connection((address, 8080), timeout=5) as connection:
        connection.sendall(b"who\n")
        return connection.makefile().readline()
