"""Pods that are not as they should be: the reason is told, the Pod stays as it was, and what comes late still works."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from virt_handler.decisions.netplans import NetworkError

from .lab import GUEST_MAC, POD_MAC, Lab, eventually
from .resident import Resident
from .test_netsetup import BINDINGS, interface

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def resident() -> Iterator[Resident]:
    with Resident() as made:
        yield made


def test_a_nic_without_an_address_and_one_that_comes_late(resident: Resident, tmp_path: Path) -> None:
    with Lab(tmp_path / "state", families="") as lab:
        before = lab.snapshot()
        with pytest.raises(NetworkError, match="eth0 has no global address, so there is nothing to masquerade") as told:
            resident.ask(lab, "setup", interface("masquerade"))
        assert not told.value.fatal, "it may still come"
        assert (lab.snapshot(), lab.servers()) == (before, [])
        assert not list(tmp_path.rglob("*.json"))
        lab.families = "4"
        lab._addresses()
        assert resident.ask(lab, "setup", interface("masquerade"))["interfaces"][0]["podIps"] == ["10.99.0.5"]
        resident.ask(lab, "teardown", [])


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_plugin_that_is_late(resident: Resident, tmp_path: Path, binding: str) -> None:
    """The Pod has no interface at all yet."""
    with Lab(tmp_path / "state", "4") as lab:
        lab.ip(lab.pod, "link", "set", "eth0", "down")
        lab.ip(lab.pod, "link", "set", "eth0", "name", "later")
        with pytest.raises(NetworkError, match=r"the Pod has no interface eth0 \(it has: later, lo\)") as told:
            resident.ask(lab, "setup", interface(binding))
        assert not told.value.fatal
        assert not list(tmp_path.rglob("*.json"))
        lab.ip(lab.pod, "link", "set", "later", "name", "eth0")
        lab.ip(lab.pod, "link", "set", "eth0", "up")
        lab.ip(lab.pod, "route", "add", "default", "via", "10.99.0.1")
        assert resident.ask(lab, "setup", interface(binding))["interfaces"]
        resident.ask(lab, "teardown", [])
        assert lab.servers() == []


def test_a_guest_that_wants_the_bridges_own_mac(resident: Resident, tmp_path: Path) -> None:
    with Lab(tmp_path / "state", "4") as lab:
        before = lab.snapshot()
        with pytest.raises(NetworkError, match="02:00:00:00:00:00 is taken by the bridge in the Pod") as told:
            resident.ask(lab, "setup", interface("masquerade", mac="02:00:00:00:00:00"))
        assert told.value.fatal, "no later try would end otherwise"
        assert lab.snapshot() == before


def test_one_mac_in_two_pods_of_a_network(resident: Resident, tmp_path: Path) -> None:
    """A bridged guest that asks for a MAC which its neighbour has: each Pod is wired, and each guest hears its own
    server. That two neighbours share a MAC nobody in a Pod can see."""
    with Lab(tmp_path / "state", "4") as one, Lab(tmp_path / "state", "4") as other:
        for lab in (one, other):
            assert resident.ask(lab, "setup", interface("bridge"))["interfaces"][0]["mac"] == GUEST_MAC
            lab.plug_guest(mac=GUEST_MAC)
            assert lab.lease(tmp_path / f"{lab.pod}.sh")["ip"] == "10.99.0.5"
            bridge = lab.ip(lab.pod, "link", "show", "k6t-eth0")
            assert GUEST_MAC not in bridge
            assert POD_MAC not in bridge
            resident.ask(lab, "teardown", [])


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_server_that_was_killed_serves_again(resident: Resident, tmp_path: Path, binding: str) -> None:
    """As virt-handler has it done once it hears of the end: the wiring stays, and the lease is the same."""
    with Lab(tmp_path / "state", "4") as lab:
        mac = {} if binding == "masquerade" else {"mac": ""}
        report = resident.ask(lab, "setup", interface(binding, **mac))
        lab.plug_guest(mac=GUEST_MAC if binding == "masquerade" else POD_MAC)
        before, wired = lab.lease(tmp_path / "one.sh"), lab.snapshot()
        [server] = report["servers"]
        assert lab.servers() == [server["pid"]]
        os.kill(server["pid"], signal.SIGKILL)
        eventually(lambda: not lab.servers())
        again = resident.ask(lab, "setup", interface(binding, **mac))
        assert again["interfaces"] == report["interfaces"]
        assert [each["pid"] for each in again["servers"]] == lab.servers() != [server["pid"]]
        assert lab.snapshot() == wired
        lab.inside(lab.guest, "busybox", "ip", "addr", "flush", "dev", "eth0")
        assert lab.lease(tmp_path / "two.sh") == before
        resident.ask(lab, "teardown", [])
