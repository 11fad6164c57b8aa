"""`virtctl explain network` on real guests that are broken in different ways: where packets stop, in one sentence."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from .conftest import Space
from .engine import eventually
from .manifests import kernel_boot, with_volume
from .test_converging import link
from .test_secondary_networks import addressed, lease, two_nics
from .test_secondary_networks import device as card_of
from .vms import make

pytestmark = [pytest.mark.e2e, pytest.mark.patient]
#: A guest that leaves its card alone.
NO_NETWORK = "version: 2\nethernets:\n  eth0:\n    mtu: 1400\n"


def walked(space: Space, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(space.virtctl("explain", "network", f"vmi/{name}", "-o", "json"))
    return found


def told(space: Space, name: str, words: str, stops_at: str = "", *, within_s: float = 60) -> dict[str, Any]:
    """Waits for these words in the sentence; gives the way of the first NIC. A look is kept for some seconds."""
    last: dict[str, Any] = {}

    def look() -> bool:
        last.update(walked(space, name))
        return words in last["sentence"]

    try:
        eventually(look, within_s=within_s, what=words)
    except AssertionError as error:
        raise AssertionError(f"{error}; told was: {json.dumps(last, indent=1)}") from None
    walk: dict[str, Any] = last["interfaces"][0]
    assert walk.get("stopsAt", "") == stops_at, last
    return walk


def server_of(space: Space, vmi: Any) -> int:
    """The DHCP server in the network of the guest's Pod."""
    network = os.readlink(f"/proc/{space.engine.launcher_pid(vmi['metadata']['uid'])}/ns/net")
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text() == "dnsmasq\n" and os.readlink(path.parent / "ns/net") == network:
                return int(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise LookupError("no DHCP server in the Pod's network")


def test_a_guest_is_reached_until_it_breaks_its_network(space: Space) -> None:
    machine = make(space, "well", "Always")
    machine.printable("Running")
    fine = told(space, "well", "Packets reach the guest: it answers at 10.0.2.2")
    assert (fine["state"], fine["answered"][0]) == ("Reached", "10.0.2.2")
    [pod_ip] = [ip for ip in fine["podAddresses"] if "." in ip]
    assert pod_ip == space.vmi("well")["status"]["interfaces"][0]["ipAddress"]
    assert f"its address is {pod_ip}, and the guest answers there" in space.virtctl("explain", "vmi", "well")
    with space.console("well") as console:
        console.prompt()
        console.shell("killall udhcpc dhcp6c; ip addr flush dev eth0 scope global")
        told(space, "well", "got one, but does not answer at 10.0.2.2", "guest")
        console.shell("ip addr add 10.66.66.66/8 dev eth0; ping -c 3 -W 1 10.66.66.1 >/dev/null & sleep 1")
        told(space, "well", "dropped at its TAP: wrong sender address", "rules")
        console.shell("ip addr flush dev eth0 scope global; ip addr add 10.0.2.2/24 dev eth0")
        told(space, "well", "Packets reach the guest: it answers at 10.0.2.2")
        console.shell("ip link set eth0 down; ip link set eth0 address 02:66:66:66:66:66; ip link set eth0 up")
        told(space, "well", "it answers as 02:66:66:66:66:66, but may send as", "rules")
    link(machine, "down")
    told(space, "well", "The link is down by spec", "tap")
    assert space.vmi("well")["status"]["interfaces"][0]["linkState"] == "down"
    assert "The link is down by spec" in space.virtctl("explain", "vm", "well")
    space.virtctl("pause", "vmi", "well")
    link(machine, "up")
    told(space, "well", "The machine is paused", "guest")


def test_a_guest_that_never_asked_for_its_address(space: Space) -> None:
    """Its DHCP client is off; then it asks, and is answered, though its server was killed just before."""
    seed = {"cloudInitNoCloud": {"networkData": NO_NETWORK, "userData": "#!/bin/sh\ntrue\n"}}
    vmi = space.boot(with_volume(kernel_boot("shy"), "seed", seed))
    with space.console("shy") as console:
        console.prompt()
        told(space, "shy", "The guest has sent nothing since its start", "guest")
        console.shell("ip link set eth0 up")
        told(space, "shy", "never asked for a lease, and does not use 10.0.2.2", "guest")
        pod_ip = space.vmi("shy")["status"]["interfaces"][0]["ipAddress"]
        words = f"its Pod has the address {pod_ip}, but the guest was not seen using it: The guest sends"
        explained = lambda: words in space.virtctl("explain", "vmi", "shy")  # noqa: E731
        eventually(explained, within_s=120, what="a guest that is given no more time to start")
        os.kill(server_of(space, vmi), signal.SIGKILL)
        console.shell("udhcpc -n -q -t 40 -T 1 -i eth0 -s /usr/lib/guest/dhcp-event")
        told(space, "shy", "Packets reach the guest: it answers at 10.0.2.2")


def test_a_machine_that_boots_nothing(space: Space) -> None:
    nothing = with_volume(kernel_boot("void"), "data", {"emptyDisk": {"capacity": "8Mi"}})
    del nothing["spec"]["domain"]["firmware"]
    space.boot(nothing)
    walk = told(space, "void", "The guest has sent nothing since its start: no system runs in it", "guest")
    states = {station["name"]: station["state"] for station in walk["stations"]}
    assert (states["pod-nic"], states["bridge"], states["tap"], states["dhcp"]) == ("passes",) * 4


def test_each_nic_has_a_way_of_its_own(space: Space) -> None:
    """Bridged, beside the Pod network; the second is reached as soon as it took its lease."""
    space.apply(addressed("blue"))
    space.boot(two_nics(space, "both", "blue"))
    second = next(nic for nic in space.vmi("both")["status"]["interfaces"] if nic["name"] == "second")
    with space.console("both") as console:
        console.prompt()
        address = lease(console, card_of(console, second["mac"]))
        told(space, "both", f"second: Packets reach the guest: it answers at {address}")
        text = space.virtctl("explain", "network", "vmi", "both")
    assert text.count("STATION") == 2
    assert "default (masquerade): Reached" in text
    assert "second (bridge): Reached" in text
