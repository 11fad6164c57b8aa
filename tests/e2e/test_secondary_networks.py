"""Networks beside the Pod network, by NetworkAttachmentDefinition: guests with two NICs, and NICs that come and go."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from .conftest import Space
from .console import Console
from .engine import VirtLocal, eventually
from .manifests import kernel_boot
from .vms import Machine, conditions, vm

pytestmark = pytest.mark.e2e
SUBNET = "10.66.7."


def network(name: str, **config: Any) -> dict[str, Any]:
    plain = {"cniVersion": "0.3.1", "type": "bridge", "bridge": name, **config}
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name},
        "spec": {"config": json.dumps(plain)},
    }


def addressed(name: str) -> dict[str, Any]:
    return network(name, ipam={"type": "host-local", "subnet": f"{SUBNET}0/24"})


def nic(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "bridge": {}, **more}


def source(name: str, definition: str) -> dict[str, Any]:
    return {"name": name, "multus": {"networkName": definition}}


def node_of(space: Space) -> dict[str, str]:
    """One node for all guests of a test: a bridge of the bridge plugin ends at its node."""
    return {"kubernetes.io/hostname": space.engine.get("nodes")["items"][-1]["metadata"]["name"]}


def two_nics(space: Space, name: str, definition: str, **more: Any) -> dict[str, Any]:
    manifest = kernel_boot(name, nodeSelector=node_of(space))
    manifest["spec"]["domain"]["devices"]["interfaces"].append(nic("second", **more))
    manifest["spec"]["networks"].append(source("second", definition))
    return manifest


def status(space: Space, name: str, interface: str = "second") -> dict[str, Any]:
    """What the VMI's status says of a NIC; nothing if it knows none of that name."""
    found = space.vmi(name)["status"].get("interfaces", [])
    return next((dict(each) for each in found if each.get("name") == interface), {})


@contextmanager
def consoles(space: Space, *names: str) -> Iterator[list[Console]]:
    with ExitStack() as stack:
        opened = [stack.enter_context(space.console(name)) for name in names]
        for console in opened:
            console.prompt()
        yield opened


def device(console: Console, mac: str, *, within_s: float = 30) -> str:
    """What the guest calls the card with this MAC."""

    def look() -> str:
        seen = console.shell("grep -il " + mac + " /sys/class/net/*/address")
        found = re.search(r"/sys/class/net/(\w+)/address\r?\n", seen)
        return found[1] if found else ""

    return str(eventually(look, within_s=within_s, what=f"a card {mac} in the guest"))


def lease(console: Console, card: str) -> str:
    """The address that the guest gets by DHCP on that card."""
    console.shell(f"ip link set {card} up")
    ask = f"udhcpc -n -q -t 3 -i {card} -s /usr/lib/guest/dhcp-event; ip -4 addr show {card}"
    told = eventually(
        lambda: re.search(rf"inet ({re.escape(SUBNET)}\d+)", console.shell(ask)),
        within_s=60,
        what=f"a lease on {card}",
    )
    return str(told[1])


def no_dhcp(console: Console, card: str) -> None:
    """Ends the guest's own client there, which takes addresses away again while nobody answers it."""
    end = f"kill $(cat /run/udhcpc.{card}.pid) && echo ended-$((6*7))"
    eventually(lambda: "ended-42" in console.shell(end), within_s=30, what=f"the guest's DHCP client on {card}")


def reaches(console: Console, address: str, name: str) -> None:
    """By ping, and by TCP up to the program in the other guest."""
    eventually(
        lambda: "0% packet loss" in (seen := console.shell(f"ping -c 2 -W 2 {address}")) and "100%" not in seen,
        within_s=60,
        what=f"a ping to {address}",
    )
    assert f"{name} who" in console.shell(f"echo who | nc -w 5 {address} 8080")


def test_two_guests_on_two_networks(space: Space) -> None:
    space.apply(addressed("blue"))
    for name in ("left", "right"):
        space.apply(two_nics(space, name, "blue"))
    for name in ("left", "right"):
        space.ready(name)
    told = [status(space, name) for name in ("left", "right")]
    for each in told:
        assert re.fullmatch(r"pod[0-9a-f]{11}", each["podInterfaceName"])
        assert each["infoSource"].split(", ")[0] == "domain"
        assert "multus-status" in each["infoSource"]
        assert (each["linkState"], each["queueCount"]) == ("up", 1)
        assert each["ipAddress"].startswith(SUBNET)
    first = space.vmi("left")["status"]["interfaces"][0]
    assert (first["name"], first["podInterfaceName"]) == ("default", "eth0")
    with consoles(space, "left", "right") as (left, right):
        cards = [device(console, each["mac"]) for console, each in zip((left, right), told, strict=True)]
        addresses = [lease(console, card) for console, card in zip((left, right), cards, strict=True)]
        assert addresses == [each["ipAddress"] for each in told], "the guest has what the Pod was given"
        reaches(left, addresses[1], "right")
        assert "10.0.2.2" in left.shell("ip -4 addr show eth0"), "the first network is still there"
    pod = space.engine.get("-n", space.namespace, "pods", "-l", "kubevirt.io=virt-launcher")["items"][0]
    asked = json.loads(pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"])
    assert [(each["name"], each["namespace"]) for each in asked] == [("blue", space.namespace)]


def test_a_network_without_addresses_and_a_liar_on_it(space: Space) -> None:
    """No DHCP server, no addresses told: what the guests agree upon works, under their own MACs only."""
    space.apply(network("green"))
    macs = {"honest": "02:bb:00:00:00:01", "liar": "02:bb:00:00:00:02"}
    for name, mac in macs.items():
        space.apply(two_nics(space, name, "green", macAddress=mac))
    for name, mac in macs.items():
        space.ready(name)
        assert status(space, name)["mac"] == mac
        assert "ipAddress" not in status(space, name)
    with consoles(space, "honest", "liar") as (honest, liar):
        for console, mac, address in ((honest, macs["honest"], "1"), (liar, macs["liar"], "2")):
            card = device(console, mac)
            no_dhcp(console, card)
            console.shell(f"ip addr add {SUBNET}{address}/24 dev {card}; ip link set {card} up")
        card = device(liar, macs["liar"])
        reaches(liar, f"{SUBNET}1", "honest")
        liar.shell(f"ip link set {card} down; ip link set {card} address 02:bb:00:00:00:99; ip link set {card} up")
        assert "100% packet loss" in liar.shell(f"ping -c 3 -W 1 {SUBNET}1")
        liar.shell(f"ip link set {card} down; ip link set {card} address {macs['liar']}; ip link set {card} up")
        reaches(liar, f"{SUBNET}1", "honest")


def template(machine: Machine, change: Any) -> None:
    """Changes NICs and networks of the VM's template as `kubectl edit` would."""
    spec = machine.get()["spec"]["template"]["spec"]
    nics, networks = spec["domain"]["devices"]["interfaces"], spec["networks"]
    change(nics, networks)
    patch = [
        {"op": "replace", "path": "/spec/template/spec/domain/devices/interfaces", "value": nics},
        {"op": "replace", "path": "/spec/template/spec/networks", "value": networks},
    ]
    machine.space.kubectl("patch", "vm", machine.name, "--type=json", "-p", json.dumps(patch))


def state_of(machine: Machine, state: str) -> None:
    def change(nics: list[Any], _networks: list[Any]) -> None:
        next(each for each in nics if each["name"] == "second")["state"] = state

    template(machine, change)


def carrier(console: Console, card: str, wanted: int) -> None:
    see = f"[ $(cat /sys/class/net/{card}/carrier) = {wanted} ] && echo seen-$((6*7))"
    eventually(lambda: "seen-42" in console.shell(see), within_s=30, what=f"carrier {wanted} in the guest")


def test_a_nic_comes_and_goes_in_a_running_guest(space: Space) -> None:
    space.apply(addressed("red"))
    space.apply(two_nics(space, "peer", "red"))
    host = vm("host", "Always")
    host["spec"]["template"]["spec"]["nodeSelector"] = node_of(space)
    space.apply(host)
    machine = Machine(space, "host")
    machine.printable("Running")
    space.ready("peer")
    emulator = space.engine.qemu_pid(space.namespace, "host")
    template(machine, lambda nics, nets: (nics.append(nic("second")), nets.append(source("second", "red"))))
    told = eventually(lambda: plugged(space, "host"), within_s=60, what="the new NIC in the machine and in the Pod")
    with consoles(space, "host", "peer") as (host, peer):
        there = status(space, "peer")
        address = lease(peer, device(peer, there["mac"]))
        card = device(host, told["mac"])
        host.shell(f"ip link set {card} up")
        carrier(host, card, 1)
        assert lease(host, card) == told["ipAddress"]
        reaches(host, address, "peer")
        for state, seen in (("down", 0), ("up", 1)):
            state_of(machine, state)
            carrier(host, card, seen)
            eventually(lambda state=state: status(space, "host")["linkState"] == state, within_s=30)  # type: ignore[misc]
        state_of(machine, "absent")
        gone = f"[ -e /sys/class/net/{card} ] || echo gone-$((6*7))"
        eventually(lambda: "gone-42" in host.shell(gone), within_s=60, what="no such card in the guest any more")
    eventually(lambda: status(space, "host") == {}, within_s=60, what="nobody knows of the NIC any more")
    eventually(lambda: names(machine.get()["spec"]["template"]["spec"]) == ["default"], within_s=30, what="template")
    eventually(lambda: names(space.vmi("host")["spec"]) == ["default"], within_s=30, what="the VMI's spec")
    eventually(lambda: annotation(space, "host", "networks") in ("", "[]"), within_s=30, what="the Pod's annotation")
    eventually(lambda: "red" not in annotation(space, "host", "network-status"), within_s=30, what="the Pod's networks")
    assert space.engine.qemu_pid(space.namespace, "host") == emulator
    eventually(lambda: "RestartRequired" not in conditions(machine.status()), within_s=30, what="no restart needed")
    assert "Synchronized" not in conditions(space.vmi("host")["status"])


def plugged(space: Space, name: str) -> dict[str, Any]:
    """The NIC once the machine and the Pod have it."""
    seen = status(space, name)
    return seen if {"domain", "multus-status"} <= set(seen.get("infoSource", "").split(", ")) else {}


def names(spec: dict[str, Any]) -> list[str]:
    return [each["name"] for each in spec["domain"]["devices"]["interfaces"]]


def annotation(space: Space, vmi: str, name: str) -> str:
    pods = space.engine.get("-n", space.namespace, "pods", "-l", f"vmi.kubevirt.io/id={vmi}")["items"]
    return str(pods[0]["metadata"]["annotations"].get(f"k8s.v1.cni.cncf.io/{name}", ""))


def test_the_node_is_not_on_the_network(space: Space) -> None:
    """On virt-local the bridge is a link of the node: a guest that speaks to it gets no answer."""
    if not isinstance(space.engine, VirtLocal):
        pytest.skip("the nodes of a cluster have rules of their own")
    space.apply(network("grey"))
    space.boot(two_nics(space, "lone", "grey", macAddress="02:bb:00:00:00:03"))
    shown = subprocess.check_output(["ip", "-n", f"{space.engine.instance}-node1", "-j", "-6", "addr"], text=True)
    links = [each for each in json.loads(shown) if each["ifname"].startswith("nad-")]
    near = [each["local"] for link in links for each in link["addr_info"] if each["scope"] == "link"]
    assert near, "the kernel gives each bridge an address of its own"
    with consoles(space, "lone") as (console,):
        card = device(console, "02:bb:00:00:00:03")
        console.shell(f"ip link set {card} up")
        # Without what follows one that is still being tried out.
        own = r"inet6 fe80::\S+/64 scope link\s*\r?\n"
        eventually(lambda: re.search(own, console.shell(f"ip -6 addr show {card}")), within_s=30)
        for address in near:
            seen = console.shell(f"ping -6 -c 3 -W 1 -I {card} {address}")
            assert "100% packet loss" in seen, seen


def test_a_network_that_is_not_there_makes_no_pod(space: Space) -> None:
    space.apply(two_nics(space, "early", "late"))

    def waits() -> bool:
        found = [c for c in space.vmi("early")["status"].get("conditions", []) if c["type"] == "Synchronized"]
        return bool(found) and "no NetworkAttachmentDefinition" in found[0]["message"]

    eventually(waits, within_s=30, what="the VMI says what is missing")
    assert space.engine.get("-n", space.namespace, "pods")["items"] == []
    space.apply(network("late"))
    space.ready("early")


def test_what_can_not_work_is_refused_at_the_door(space: Space) -> None:
    assert "masquerade" in space.refuse(changed(two_nics(space, "one", "blue"), masquerade={}))
    assert "multus.networkName" in space.refuse(two_nics(space, "two", "../blue"))


def changed(manifest: dict[str, Any], **binding: Any) -> dict[str, Any]:
    manifest["spec"]["domain"]["devices"]["interfaces"][1] = {"name": "second", **binding}
    return manifest
