"""A machine whose cards are bound by passt and by a plugin moves to another node."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from .conftest import KUBEVIRT, Space, admitted, replace
from .console import Console
from .engine import Engine, eventually
from .manifests import kernel_boot
from .test_bindings import PORTS, answers_tcp, answers_udp, bound, has
from .test_migration import boot_of, ended, job
from .test_secondary_networks import consoles, device, network, source

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.patient]
NAMESPACE = f"e2e-{os.getpid()}-bindings"
PLUGIN = {"domainAttachmentType": "managedTap", "migration": {"method": "link-refresh"}}


@pytest.fixture
def moves(pair: Engine) -> Iterator[Space]:
    """Two nodes, and a plugin that says how machines move."""
    before = pair.get(*KUBEVIRT)["spec"].get("configuration", {})
    pair.kubectl("create", "namespace", NAMESPACE)
    try:
        replace(pair, {**before, "network": {**before.get("network", {}), "binding": {"flat": PLUGIN}}})
        yield Space(pair, NAMESPACE)
    finally:
        pair.kubectl("delete", "namespace", NAMESPACE, "--wait=true", "--timeout=120s", timeout=130)
        replace(pair, before)


def blinks(console: Console, card: str) -> int:
    told = re.search(r"changes-(\d+)", console.shell(f"echo changes-$(cat /sys/class/net/{card}/carrier_changes)"))
    assert told is not None
    return int(told[1])


def test_a_guest_by_passt_and_by_a_plugin_moves_and_is_reached_again(moves: Space) -> None:
    """At its new Pod's address, though the guest goes on with the old one; and its other link goes and comes."""
    moves.apply(network("flat"))
    manifest = bound("carried", passtBinding={}, ports=PORTS)
    manifest["spec"]["domain"]["devices"]["interfaces"].append({"name": "second", "binding": {"name": "flat"}})
    manifest["spec"]["networks"].append(source("second", "flat"))
    eventually(lambda: admitted(moves, manifest), within_s=10, what="the plugin is known")
    moves.apply(manifest)
    moves.apply(kernel_boot("peer"))
    before = moves.ready("carried")["status"]
    there = moves.ready("peer")["status"]["interfaces"][0]["ipAddress"]
    with consoles(moves, "carried", "peer") as (carried, peer):
        old = before["interfaces"][0]["ipAddress"]
        has(carried, old)
        answers_tcp(peer, old, "carried")
        boot = boot_of(carried)
        card = device(carried, before["interfaces"][1]["mac"])
        carried.shell(f"ip link set {card} up")
        changes = blinks(carried, card)
    moves.apply(job("away", "carried"))
    assert ended(moves, "away")["status"]["phase"] == "Succeeded"
    now = eventually(
        lambda: (s := moves.vmi("carried")["status"])["nodeName"] != before["nodeName"] and s,
        within_s=30,
        what="another node",
    )
    new = eventually(
        lambda: (ip := moves.vmi("carried")["status"]["interfaces"][0]["ipAddress"]) != old and ip,
        within_s=30,
        what="the address of the new Pod",
    )
    with consoles(moves, "carried", "peer") as (carried, peer):
        assert boot_of(carried) == boot
        answers_tcp(carried, there, "peer")
        answers_tcp(peer, new, "carried")
        answers_udp(new)
        try:
            eventually(lambda: blinks(carried, card) >= changes + 2, within_s=30, what="a link that went and came")
        except AssertionError as error:
            seen = carried.shell(f"dmesg | tail; ip -s link show {card}")
            pods = moves.kubectl("logs", "-l", "vm.kubevirt.io/name=carried", "-c", "compute", "--tail=60")
            raise AssertionError(f"{error} (before: {changes})\n{seen}\n{pods}") from None
    assert now["interfaces"][0]["mac"] == before["interfaces"][0]["mac"]
