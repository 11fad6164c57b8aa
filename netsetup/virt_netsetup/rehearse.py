"""What the resident process does once, in its own empty network, so that its children need not: first times are dear.

pyroute2 compiles its tables of attributes at their first use, msgspec its decoders, libnftables is loaded. A child gets
all that with the fork.
"""

from __future__ import annotations

from virt_core.apis.base import decode, encode
from virt_core.apis.bindings import BRIDGE, MASQUERADE
from virt_core.apis.netplan import NetPlan, NetPlanInterface
from virt_netsetup import compose, firewall
from virt_netsetup.kernel import LinuxKernel
from virt_netsetup.model import Address, PodNic, Record, Route

_NAME, _MAC = "rehearsal", "02:00:00:00:00:01"
_ADDRESSES = (Address(ip="10.0.2.1", prefix=24), Address(ip="fd10:0:2::1", prefix=120))


def rehearse() -> None:
    """Leaves nothing behind. What fails here fails again, with a reason, where somebody asks for it."""
    _compose()
    firewall.preload()
    try:
        _configure()
    except OSError:
        return


def _compose() -> None:
    nic = PodNic(index=1, name="eth0", mac=_MAC, mtu=1500, addresses=_ADDRESSES)
    for binding in (MASQUERADE, BRIDGE):
        wish = NetPlanInterface(name="default", binding=binding, hostname="vm", dns_servers=["10.0.2.1"])
        plan = decode(encode(NetPlan(vmi_uid=_NAME, state_dir="/", pod_pid=1, interfaces=[wish])), NetPlan)
        compose.check_plan(plan)
        encode(compose.setup(plan, plan.interfaces[0], nic, 0).report)
        compose.teardown(decode(encode(Record(nic=nic, binding=binding, namespace=0)), Record))


def _configure() -> None:
    kernel = LinuxKernel()
    try:
        kernel.add_link(_NAME, "bridge", _MAC, 1500)
        link = kernel.link(_NAME)
        if link is None:
            return
        kernel.set_link(link.index, mtu=1400, up=True)
        for address in _ADDRESSES:
            kernel.add_address(link.index, address)
        kernel.add_route(link.index, Route(destination="", gateway="10.0.2.2"))
        kernel.addresses(link.index)
        kernel.routes(link.index)
        kernel.links()
        kernel.delete_link(link.index)
    finally:
        kernel.close()
