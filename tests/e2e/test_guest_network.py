"""The Pod network as a guest sees it: what DHCP tells, both families, packets of full size, ports in ranges; and what
happens when a part of it fails."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

import pytest

from .conftest import Configure, Space, admitted
from .console import Console
from .engine import eventually, process_table
from .manifests import kernel_boot
from .test_secondary_networks import network, status, two_nics

pytestmark = [pytest.mark.e2e, pytest.mark.patient]
OPTIONS = {
    "tftpServerName": "10.0.0.7",
    "bootFileName": "boot.efi",
    "ntpServers": ["10.0.0.8"],
    "privateOptions": [{"option": 224, "value": "192.168.1.1"}],
}
#: Writes down all that a lease says, and takes nothing of it.
TOLD = "printf '#!/bin/sh\\n[ $1 = bound ] && env >/tmp/told\\n' >/tmp/told.sh; chmod +x /tmp/told.sh"


def masqueraded(name: str, **more: Any) -> dict[str, Any]:
    manifest = kernel_boot(name)
    manifest["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}, **more}]
    return manifest


def lease(console: Console) -> dict[str, str]:
    """What the guest is told when it asks again."""
    console.shell(TOLD)
    asked = " ".join(f"-O {name}" for name in ("tftp", "bootfile", "ntpsrv", "224", "mtu"))
    seen = console.shell(
        f"rm -f /tmp/told; udhcpc -n -q -f -t 5 -T 2 -i eth0 {asked} -s /tmp/told.sh >/dev/null 2>&1; cat /tmp/told",
        within_s=40,
    )
    return dict(re.findall(r"^(\w+)=(.*?)\r?$", seen, re.MULTILINE))


def leased(space: Space, name: str) -> str:
    """The address that the guest is given. Its console ends with virt-handler, so it is opened each time."""
    with space.console(name) as console:
        console.prompt()
        return lease(console).get("ip", "")


def servers(space: Space, name: str) -> list[int]:
    """The DHCP servers in the network of a guest's Pod."""
    launcher = space.engine.launcher_pid(space.vmi(name)["metadata"]["uid"])
    own = os.readlink(f"/proc/{launcher}/ns/net")
    found = []
    for pid, args in process_table():
        try:
            if args[0].endswith("dnsmasq") and os.readlink(f"/proc/{pid}/ns/net") == own:
                found.append(pid)
        except FileNotFoundError:
            continue
    return found


def addresses(space: Space, name: str) -> dict[int, str]:
    """The Pod's, by family."""
    found = status(space, name, "default").get("ipAddresses", [])
    return {6 if ":" in each else 4: each for each in found}


def test_a_lease_has_each_option(space: Space) -> None:
    space.boot(masqueraded("options", dhcpOptions=OPTIONS))
    with space.console("options") as console:
        console.prompt()
        told = lease(console)
        assert (told["tftp"], told["bootfile"], told["ntpsrv"]) == ("10.0.0.7", "boot.efi", "10.0.0.8")
        assert bytes.fromhex(told["opt224"]) == b"192.168.1.1"
        assert f"mtu {told['mtu']} " in console.shell("ip link show eth0")


def test_both_families_and_full_packets(space: Space) -> None:
    for name in ("near", "far"):
        space.apply(masqueraded(name))
    for name in ("near", "far"):
        space.ready(name)
    there = addresses(space, "far")
    if 6 not in there:
        pytest.skip("Pods have no IPv6 here")
    with space.console("near") as near:
        near.prompt()
        own = "ip -6 addr show eth0"
        eventually(lambda: "fd10:0:2::2" in near.shell(own), within_s=90, what="an address by DHCPv6")
        mtu = int(re.search(r"mtu (\d+)", near.shell("ip link show eth0"))[1])  # type: ignore[index]
        for address, head in ((there[4], 28), (there[6], 48)):
            answered = f"echo who | nc -w 5 {address} 8080"
            eventually(lambda ask=answered: "far who" in near.shell(ask), within_s=60, what=f"an answer of {address}")
            # Of this size it is one packet, and with IPv6 nobody on the way may cut it.
            seen = near.shell(f"ping -c 2 -W 3 -s {mtu - head} {address}", within_s=20)
            assert " 0% packet loss" in seen, seen


def test_a_range_of_ports(space: Space, configure: Configure) -> None:
    """8080 lies in it; 7, at which the guest echoes, does not."""
    configure({"developerConfiguration": {"featureGates": ["PortRangesSpec"]}})
    wish = masqueraded("ranged", portRanges=[{"protocol": "TCP", "start": 8000, "end": 8100}])
    eventually(lambda: admitted(space, wish), within_s=30, what="the gate")
    space.apply(wish)
    space.apply(masqueraded("asker"))
    for name in ("ranged", "asker"):
        space.ready(name)
    address = addresses(space, "ranged")[4]
    with space.console("asker") as asker:
        asker.prompt()
        eventually(
            lambda: "ranged who" in asker.shell(f"echo who | nc -w 5 {address} 8080"), within_s=60, what="an answer"
        )
        assert "who\r\nwho" not in asker.shell(f"echo who | nc -w 3 {address} 7; echo").partition("nc -w")[2]


@pytest.mark.alone
def test_a_guests_server_that_dies_comes_back(space: Space) -> None:
    """Killed while virt-handler looks, and while there is none; the guest is served again, and its machine goes on."""
    space.boot(masqueraded("served"))
    qemu = space.engine.qemu_pid(space.namespace, "served")
    assert leased(space, "served") == "10.0.2.2"
    for blind in (False, True):
        [server] = servers(space, "served")
        if blind:
            space.engine.kill_component("virt-handler")
        os.kill(server, signal.SIGKILL)
        found = eventually(
            lambda was=server: [pid for pid in servers(space, "served") if pid != was],
            within_s=90,
            what="another DHCP server",
        )
        assert len(found) == 1
        assert eventually(lambda: leased(space, "served"), within_s=90, what="a lease") == "10.0.2.2"
    eventually(
        lambda: "Synchronized" not in {each["type"] for each in space.vmi("served")["status"]["conditions"]},
        within_s=30,
        what="a VMI without trouble",
    )
    assert space.engine.qemu_pid(space.namespace, "served") == qemu


def test_a_network_without_a_free_address(space: Space) -> None:
    """The second guest waits and says why; it starts once the first has gone."""
    place = {
        "type": "host-local",
        "ranges": [[{"subnet": "10.66.9.0/24", "rangeStart": "10.66.9.5", "rangeEnd": "10.66.9.5"}]],
    }
    space.apply(network("narrow", ipam=place))
    space.boot(two_nics(space, "first", "narrow"))
    space.apply(two_nics(space, "second", "narrow"))

    def told() -> str:
        vmi = space.vmi("second")
        assert vmi["status"]["phase"] in ("Pending", "Scheduling", "Scheduled")
        return space.virtctl("explain", "vmi", "second") + json.dumps(vmi["status"].get("conditions", []))

    eventually(lambda: "no IP addresses available" in told(), within_s=60, what="the reason")
    space.kubectl("delete", "vmi", "first", "--timeout=60s")
    space.running("second", within_s=120)
    assert status(space, "second")["ipAddress"] == "10.66.9.5"
    space.kubectl("delete", "vmi", "second", "--timeout=60s")
    space.gone("pods")
