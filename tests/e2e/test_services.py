"""Services in front of real guests, as `virtctl expose` makes them: from guests, Pods, the machine and its network."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from virt_local.up import links
from virt_local.up.links import Address, Layout, Veth

from .conftest import Space
from .engine import Engine, VirtLocal, eventually
from .manifests import kernel_boot

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

#: Prints what `ADDRESS PORT` answers to a line, by TCP or UDP.
ASK = """
import socket, sys
kind, address, port, words = sys.argv[1:]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
with socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as asking:
    asking.settimeout(5)
    asking.connect((address, int(port)))
    asking.sendall(words.encode() + b"\\n")
    print(asking.recv(200).decode().strip())
"""


def bridged(name: str) -> dict[str, Any]:
    manifest = kernel_boot(name)
    manifest["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "bridge": {}}]
    return manifest


def expose(space: Space, target: str, name: str, *options: str) -> dict[str, Any]:
    space.virtctl("expose", "vmi", target, f"--name={name}", *options)
    return dict(space.engine.get("-n", space.namespace, "service", name)["spec"])


def ask(kind: str, address: str, port: int, words: str = "who", *, enter: tuple[str, ...] = ()) -> str:
    command = [*enter, sys.executable, "-c", ASK, kind, address, str(port), words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def answers(wanted: str, *where: Any, **how: Any) -> None:
    eventually(lambda: ask(*where, **how) == wanted, within_s=60, what=f"{wanted!r} from {where}")


def node_address(engine: Engine) -> str:
    addresses = engine.get("nodes")["items"][0]["status"]["addresses"]
    return next(str(each["address"]) for each in addresses if each["type"] == "InternalIP")


def inside(space: Space, name: str) -> tuple[str, ...]:
    """Into the network of a guest's Pod."""
    pid = space.engine.launcher_pid(space.vmi(name)["metadata"]["uid"])
    return ("nsenter", "-t", str(pid), "-n")


@contextmanager
def lan(engine: VirtLocal) -> Iterator[tuple[str, str]]:
    """A machine of the network beyond: its namespace, and where it finds this machine."""
    name, link = f"{engine.instance}-lan", f"{engine.instance}l0"
    links.ensure_namespace(name)
    try:
        links.establish(Layout(veths=(Veth(link, "eth0", name),), addresses=(Address(link, "198.51.100.9/30"),)))
        there = Layout(addresses=(Address("eth0", "198.51.100.10/30"),), up=("eth0",))
        links.in_namespace(name, partial(links.establish, there))
        yield name, "198.51.100.9"
    finally:
        links.remove_namespace(name)
        links.remove(link)


def test_a_guest_is_reached_by_its_service(space: Space) -> None:
    for manifest in (kernel_boot("web"), kernel_boot("asker"), bridged("bridged")):
        space.apply(manifest)
    for name in ("web", "asker", "bridged"):
        space.ready(name)
    door = expose(space, "web", "door", "--type=NodePort", "--port=80", "--target-port=8080")
    echo = expose(space, "web", "echo", "--type=NodePort", "--port=7", "--protocol=UDP")
    address, node = door["clusterIP"], node_address(space.engine)
    answers("web who", "tcp", node, door["ports"][0]["nodePort"])
    answers("said", "udp", node, echo["ports"][0]["nodePort"], "said")
    answers("web who", "tcp", address, 80, enter=inside(space, "asker"))
    answers("said", "udp", echo["clusterIP"], 7, "said", enter=inside(space, "asker"))
    for name in ("asker", "bridged", "web"):  # Other guests, by both bindings; and itself.
        with space.console(name) as console:
            console.prompt()
            asked = f"echo who | nc -w 5 {address} 80"
            eventually(lambda: "web who" in console.shell(asked), within_s=60, what=f"an answer to {name}")  # noqa: B023
    if isinstance(space.engine, VirtLocal):
        only_here(space, space.engine, door, echo)


def only_here(space: Space, engine: VirtLocal, door: dict[str, Any], echo: dict[str, Any]) -> None:
    """The names of Services, and what the machine of virt-local itself and its network reach."""
    with space.console("bridged") as console:
        console.prompt()
        for name in ("door", f"door.{space.namespace}.svc.cluster.local"):
            asked = f"echo who | nc -w 5 {name} 80"
            eventually(lambda: "web who" in console.shell(asked), within_s=60, what=name)  # noqa: B023
    answers("web who", "tcp", door["clusterIP"], 80)
    answers("said", "udp", echo["clusterIP"], 7, "said")
    tcp, udp = door["ports"][0]["nodePort"], echo["ports"][0]["nodePort"]
    with lan(engine) as (netns, machine):
        answers("web who", "tcp", machine, tcp)
        enter = ("nsenter", f"--net=/run/netns/{netns}", "--")
        answers("web who", "tcp", machine, tcp, enter=enter)
        answers("said", "udp", machine, udp, "said", enter=enter)


def endpoints(space: Space, service: str) -> list[str]:
    """Where the Service sends callers."""
    label = f"kubernetes.io/service-name={service}"
    slices = space.engine.get("-n", space.namespace, "endpointslices", "-l", label)["items"]
    found = [each for part in slices for each in part.get("endpoints") or [] if each["conditions"].get("ready")]
    return sorted({each["targetRef"]["name"] for each in found})


def test_a_paused_guest_gets_no_callers(space: Space) -> None:
    space.boot(kernel_boot("sleeper"))
    expose(space, "sleeper", "bed", "--port=80", "--target-port=8080")
    [pod] = eventually(lambda: endpoints(space, "bed"), within_s=30, what="an endpoint")
    assert pod.startswith("virt-launcher-sleeper-")
    space.virtctl("pause", "vmi", "sleeper")
    eventually(lambda: not endpoints(space, "bed"), within_s=30, what="no endpoint")
    space.virtctl("unpause", "vmi", "sleeper")
    eventually(lambda: endpoints(space, "bed") == [pod], within_s=30, what="the endpoint again")


def _moved(space: Space, name: str, before: str) -> bool:
    """Until then nobody is sent to where it is still on its way."""
    pods = space.engine.get("-n", space.namespace, "pods", "-l", "kubevirt.io/migrationJobUID")["items"]
    ready = [
        pod["metadata"]["name"]
        for pod in pods
        if any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
    ]
    moved = bool(space.vmi(name)["status"]["nodeName"] != before)
    if ready and not moved:
        pytest.fail(f"{ready} takes callers, and the guest is on {before}")
    return moved


def test_a_service_follows_a_guest_that_moves(pair: Engine) -> None:
    space = Space(pair, "services-move")
    pair.kubectl("create", "namespace", space.namespace)
    try:
        space.apply(kernel_boot("mover"))
        before = space.ready("mover")["status"]["nodeName"]
        door = expose(space, "mover", "door", "--type=NodePort", "--port=80", "--target-port=8080")
        echo = expose(space, "mover", "echo", "--type=NodePort", "--port=7", "--protocol=UDP")
        node, number = node_address(pair), echo["ports"][0]["nodePort"]
        answers("mover who", "tcp", node, door["ports"][0]["nodePort"])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(2)
            asking.connect((node, number))
            eventually(lambda: _echoes(asking), within_s=60, what="the guest's echo")
            move = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration"}
            space.apply(move | {"metadata": {"name": "move"}, "spec": {"vmiName": "mover"}})
            eventually(lambda: _moved(space, "mover", before), within_s=120, what="it moved")
            eventually(lambda: _echoes(asking), within_s=60, what="the same client, after the move")
        answers("mover who", "tcp", node, door["ports"][0]["nodePort"])
    finally:
        pair.drop_namespace(space.namespace)


def _echoes(asking: socket.socket) -> bool:
    asking.send(b"said\n")
    return asking.recv(100) == b"said\n"
