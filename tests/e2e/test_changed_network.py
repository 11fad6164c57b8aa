"""A card of a running machine gets another network: the machine moves into a Pod that is on it, and the guest never
stops."""

from __future__ import annotations

import pytest

from .engine import eventually
from .test_migration import boot_of, ended, job, moves
from .test_secondary_networks import (
    SUBNET,
    Space,
    consoles,
    device,
    network,
    nic,
    no_dhcp,
    reaches,
    source,
    status,
    template,
    two_nics,
)
from .vms import Machine, conditions, vm

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.patient]
__all__ = ["moves"]
CARD, PEER = "02:bb:00:00:00:11", "02:bb:00:00:00:12"


def test_a_card_goes_to_another_network(moves: Space) -> None:
    nodes = [each["metadata"]["name"] for each in moves.engine.get("nodes")["items"]]
    for name in ("old", "new"):
        moves.apply(network(name))
    peer = two_nics(moves, "peer", "new", macAddress=PEER)
    peer["spec"]["nodeSelector"] = {"kubernetes.io/hostname": nodes[1]}
    wanderer = vm("wanderer", "Always")
    spec = wanderer["spec"]["template"]["spec"]
    spec["domain"]["devices"]["interfaces"].append(nic("second", macAddress=CARD))
    spec["networks"].append(source("second", "old"))
    avoid = {"key": "kubernetes.io/hostname", "operator": "In", "values": [nodes[0]]}
    first = [{"weight": 100, "preference": {"matchExpressions": [avoid]}}]
    spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": first}}
    for manifest in (peer, wanderer):
        moves.apply(manifest)
    machine = Machine(moves, "wanderer")
    machine.printable("Running")
    for name in ("peer", "wanderer"):
        moves.ready(name)
    assert moves.vmi("wanderer")["status"]["nodeName"] == nodes[0]
    with consoles(moves, "wanderer", "peer") as (console, other):
        boot = boot_of(console)
        for each, mac, last in ((console, CARD, "1"), (other, PEER, "2")):
            card = device(each, mac)
            no_dhcp(each, card)
            each.shell(f"ip addr add {SUBNET}{last}/24 dev {card}; ip link set {card} up")
    template(machine, lambda _nics, nets: nets[1]["multus"].update(networkName="new"))
    eventually(
        lambda: conditions(moves.vmi("wanderer")["status"]).get("MigrationRequired"),
        within_s=60,
        what="the VMI says that it has to move",
    )
    assert "RestartRequired" not in conditions(machine.status())
    moves.apply(job("over", "wanderer"))
    assert ended(moves, "over")["status"]["phase"] == "Succeeded"
    eventually(
        lambda: "MigrationRequired" not in conditions(moves.vmi("wanderer")["status"]),
        within_s=60,
        what="nothing is left to do",
    )
    with consoles(moves, "wanderer") as (console,):
        assert boot_of(console) == boot
        reaches(console, f"{SUBNET}2", "peer")
    assert status(moves, "wanderer")["mac"] == CARD
