"""What a binding gives back, and what bindings share."""

from __future__ import annotations

import hashlib
import ipaddress

from virt_core.apis.netplan import NetPlan, NetPlanInterface, NetReportInterface
from virt_netsetup.dhcpserver import DhcpOptions
from virt_netsetup.linksteps import AddTap, SetMaster, SetMtu, SetUp
from virt_netsetup.model import PodNic, Value
from virt_netsetup.steps import Step


class Wiring(Value, frozen=True):
    """The steps in their order, and what to tell the handler once they are done."""

    steps: list[Step]
    report: NetReportInterface


def tap_steps(nic: PodNic, plan: NetPlan, interface: NetPlanInterface) -> list[Step]:
    """A TAP on the bridge, with the MTU of the Pod's network: a larger frame would be lost on its way out."""
    return [
        AddTap(nic.tap, plan.launcher_uid, interface.queues),
        SetMtu(nic.tap, nic.mtu),
        SetMaster(nic.tap, nic.bridge),
        SetUp(nic.tap),
    ]


def private_mac(*parts: str) -> str:
    """The same MAC for the same guest NIC each time, in the range for local use."""
    digest = hashlib.sha256("/".join(parts).encode()).digest()
    return bytes([0x02, *digest[:5]]).hex(":")


def dhcp_options(nic: PodNic, interface: NetPlanInterface) -> DhcpOptions:
    """What both bindings tell the guest."""
    extra = interface.dhcp_options
    servers = [ipaddress.ip_address(server.split("%")[0]) for server in interface.dns_servers]
    return DhcpOptions(
        mtu=nic.mtu,
        hostname=interface.hostname,
        search=tuple(interface.search_domains),
        dns4=tuple(str(server) for server in servers if server.version == 4),
        dns6=tuple(str(server) for server in servers if server.version == 6),
        ntp=tuple(extra.ntp_servers) if extra else (),
        boot_file=extra.boot_file_name if extra else "",
        tftp_server=extra.tftp_server_name if extra else "",
        private=tuple((option.option, option.value) for option in extra.private_options) if extra else (),
    )
