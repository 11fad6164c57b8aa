"""One contract for the real kernel and for the fake that the unit tests use."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.netsetup.fakes import Failing, FakeKernel
from virt_netsetup.kernel import Kernel, LinuxKernel
from virt_netsetup.model import Address, Route
from virt_netsetup.process import CLONE_NEWNET, enter_namespace
from virt_netsetup.steps import need_link

from .lab import POD_MAC, Lab

pytestmark = pytest.mark.root
IPV4, IPV6 = Address(ip="10.99.0.5", prefix=24), Address(ip="fd99::5", prefix=64)
DEFAULTS = [
    Route(destination="", gateway="10.99.0.1", protocol=3),
    Route(destination="", gateway="fd99::1", version=6, protocol=3),
]


@pytest.fixture(params=["linux", "fake"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kernel]:
    if request.param == "fake":
        fake = FakeKernel(Failing(), kinds=("bridge",))
        fake.plug("eth0", POD_MAC, 1400, [IPV4, IPV6], DEFAULTS)
        yield fake
        return
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    with Lab(tmp_path) as lab:
        enter_namespace(f"/run/netns/{lab.pod}", CLONE_NEWNET)
        real = LinuxKernel()
        try:
            yield real
        finally:
            real.close()
            enter_namespace(f"/proc/self/fd/{home}", CLONE_NEWNET)
            os.close(home)


def test_pod_nic_as_the_plugin_left_it(kernel: Kernel) -> None:
    link = need_link(kernel, "eth0")
    assert (link.kind, link.mac, link.mtu, link.up, link.master) == ("veth", POD_MAC, 1400, True, 0)
    present = kernel.addresses(link.index)
    assert IPV4 in present
    assert IPV6 in present
    routes = kernel.routes(link.index)
    assert ("", "10.99.0.1", 4) in {(route.destination, route.gateway, route.version) for route in routes}
    assert ("", "fd99::1", 6) in {(route.destination, route.gateway, route.version) for route in routes}
    assert [route.destination for route in routes if route.from_kernel and route.version == 4] == ["10.99.0.0/24"]


def test_bridge_and_its_port(kernel: Kernel) -> None:
    kernel.add_link("br-x", "bridge", "02:00:00:00:00:07", 1300)
    kernel.add_tap("tap-x", 107, 1)
    bridge, tap = need_link(kernel, "br-x"), need_link(kernel, "tap-x")
    assert (bridge.kind, bridge.mac, bridge.mtu, bridge.up) == ("bridge", "02:00:00:00:00:07", 1300, False)
    assert (tap.kind, tap.learning) == ("tun", None)
    kernel.set_link(tap.index, master=bridge.index)
    kernel.set_link(tap.index, mtu=1300, up=True)
    kernel.set_learning(tap.index, False)
    tap = need_link(kernel, "tap-x")
    assert (tap.master, tap.mtu, tap.up, tap.learning) == (bridge.index, 1300, True, False)
    kernel.set_link(tap.index, master=0)
    assert need_link(kernel, "tap-x").master == 0
    kernel.delete_link(tap.index)
    assert kernel.link("tap-x") is None


def test_refusals(kernel: Kernel) -> None:
    kernel.add_link("br-x", "bridge", "02:00:00:00:00:07", 1500)
    with pytest.raises(FileExistsError):
        kernel.add_link("br-x", "bridge", "02:00:00:00:00:07", 1500)
    with pytest.raises(OSError, match="Unknown device type") as caught:
        kernel.add_link("no-x", "nosuchkind", "02:00:00:00:00:07", 1500)
    assert caught.value.errno == errno.EOPNOTSUPP
    with pytest.raises(OSError, match=r"unreachable|gateway|no way"):
        kernel.add_route(need_link(kernel, "eth0").index, Route(destination="10.50.0.0/16", gateway="10.51.0.1"))
    with pytest.raises(FileNotFoundError):
        kernel.read_sysctl("net/ipv4/conf/absent/route_localnet")


def test_renaming_costs_routes_and_ipv6(kernel: Kernel) -> None:
    index = need_link(kernel, "eth0").index
    kernel.set_link(index, up=False)
    kernel.set_link(index, name="eth0-nic")
    kernel.set_link(index, mac="02:00:00:00:00:08")
    link = need_link(kernel, "eth0-nic")
    assert (link.index, link.mac, link.up) == (index, "02:00:00:00:00:08", False)
    assert kernel.routes(index) == []
    assert kernel.addresses(index) == [IPV4]
    kernel.set_link(index, up=True)
    kernel.add_address(index, IPV6)
    for route in DEFAULTS:
        kernel.add_route(index, route)
    present = {(route.destination, route.gateway) for route in kernel.routes(index)}
    assert {("", "10.99.0.1"), ("", "fd99::1")} <= present
    kernel.delete_address(index, IPV4)
    assert IPV4 not in kernel.addresses(index)


def test_sysctls(kernel: Kernel) -> None:
    kernel.add_link("br-x", "bridge", "02:00:00:00:00:07", 1500)
    assert kernel.read_sysctl("net/ipv4/conf/br-x/route_localnet") == "0"
    kernel.write_sysctl("net/ipv4/conf/br-x/route_localnet", "1")
    assert kernel.read_sysctl("net/ipv4/conf/br-x/route_localnet") == "1"
