"""A Pod in memory, with one dual-stack NIC."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from virt_core.apis.netplan import NetPlan, NetPlanInterface
from virt_netsetup.model import Address, Route
from virt_netsetup.state import State
from virt_netsetup.steps import World

from .fakes import Failing, FakeDhcp, FakeFirewall, FakeKernel

ADDRESSES = [Address(ip="10.99.0.5", prefix=24), Address(ip="fd99::5", prefix=64)]
ROUTES = [
    Route(destination="", gateway="10.99.0.1"),
    Route(destination="10.98.0.0/16", gateway="10.99.0.2"),
    Route(destination="", gateway="fd99::1", version=6),
]


@dataclass
class Pod:
    world: World
    state: State
    failing: Failing
    kernel: FakeKernel
    firewall: FakeFirewall
    dhcp: FakeDhcp

    def snapshot(self) -> Any:
        return self.kernel.snapshot(), dict(self.firewall.tables), dict(self.dhcp.servers)

    def plan(self, binding: str, **fields: Any) -> NetPlan:
        interface = NetPlanInterface(name="default", binding=binding, **fields)
        return NetPlan(
            vmi_uid="uid-1", netns_path="/somewhere", state_dir=str(self.state.directory), interfaces=[interface]
        )


def make_pod(
    directory: Path, addresses: list[Address] = ADDRESSES, kinds: tuple[str, ...] = ("bridge", "dummy")
) -> Pod:
    failing = Failing()
    kernel, firewall, dhcp = FakeKernel(failing, kinds), FakeFirewall(failing), FakeDhcp(failing)
    versions = {address.version for address in addresses}
    kernel.plug("eth0", "0a:58:0a:63:00:05", 1400, addresses, [route for route in ROUTES if route.version in versions])
    world = World(kernel, firewall, dhcp, namespace=7)  # type: ignore[arg-type]
    return Pod(world, State(directory / "state"), failing, kernel, firewall, dhcp)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return make_pod(tmp_path)
