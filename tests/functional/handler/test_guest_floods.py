"""A guest that says too much, through a launcher that passes it all on: the VMI stays small, and the node goes on."""

from __future__ import annotations

import json

from framework.waiting import eventually

from virt_handler.decisions.limits import MAX_ADDRESSES, MAX_GUEST_ONLY_INTERFACES, MAX_TEXT, MAX_WORD
from virt_protos.launcher.v1 import launcher_pb2 as pb

from .conftest import Node
from .fakelauncher import FakeLauncher
from .test_handler import start


def test_endless_interfaces_of_a_guest_agent(node: Node, launcher: FakeLauncher) -> None:
    """CVE-2025-14525: as many as a message holds, with as many addresses and as long names as the agent likes."""
    addresses = [f"10.{i >> 8}.{i & 255}.1" for i in range(300)]
    nics = [
        pb.GuestInterface(guest_name=f"{i}{'x' * 300}", mac="m" * 300, from_agent=True, ip_addresses=addresses[:40])
        for i in range(150)
    ]
    with node.handler():
        start(node, launcher)
        launcher.tell(
            pb.Domain(state=pb.DOMAIN_STATE_RUNNING, agent_connected=True, interfaces=nics, message="y" * 9999)
        )
        told = eventually(lambda: node.vmi()["status"].get("interfaces"))
        assert len(told) <= MAX_GUEST_ONLY_INTERFACES + 1
        assert all(len(nic.get("ipAddresses", ())) <= MAX_ADDRESSES for nic in told)
        assert all(len(nic.get("interfaceName", "")) <= MAX_WORD for nic in told)
        size = len(json.dumps(node.vmi()["status"]))
        assert size < (MAX_GUEST_ONLY_INTERFACES + 1) * MAX_ADDRESSES * MAX_TEXT
        launcher.tell(pb.Domain(state=pb.DOMAIN_STATE_PAUSED, reason="User"))
        eventually(lambda: node.condition("Paused"))
