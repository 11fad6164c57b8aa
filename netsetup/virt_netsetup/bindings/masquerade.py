"""Masquerade: the guest has a private address behind the Pod's, and NAT carries its traffic both ways.

The Pod's NIC stays as it is. A family is set up only if the Pod has a global address of it.
"""

from __future__ import annotations

import ipaddress

from msgspec.structs import replace

from virt_core.apis.netplan import (
    DEFAULT_VM_IPV6_NETWORK_CIDR,
    DEFAULT_VM_NETWORK_CIDR,
    NetPlan,
    NetPlanInterface,
    NetReportInterface,
)
from virt_netsetup import guard, nat, watch
from virt_netsetup.bindings.wiring import Wiring, dhcp_options, private_mac, tap_steps
from virt_netsetup.dhcpserver import DhcpServer
from virt_netsetup.linksteps import AddAddress, AddLink, RemoveLink, SetMtu, SetUp
from virt_netsetup.model import Address, NetsetupError, PodNic, Record
from virt_netsetup.steps import InstallTables, RemoveTables, StartDhcp, Step, StopDhcp, Sysctl
from virt_netsetup.tables import Table, name_for

BRIDGE_MAC = "02:00:00:00:00:00"
# The link-local address that belongs to this MAC. Set by hand, because the kernel waits for a carrier to set it.
BRIDGE_LINK_LOCAL = Address(ip="fe80::ff:fe00:0", prefix=64)
_LARGEST_PREFIX = {4: 30, 6: 126}
_DEFAULT = {4: DEFAULT_VM_NETWORK_CIDR, 6: DEFAULT_VM_IPV6_NETWORK_CIDR}


def guest_net(cidr: str, version: int, field: str) -> nat.GuestNet:
    """The first address of the range is the gateway, the second the guest."""
    try:
        network = ipaddress.ip_network(cidr or _DEFAULT[version], strict=False)
    except ValueError as error:
        raise NetsetupError(field, str(error), critical=True) from error
    if network.version != version:
        raise NetsetupError(field, f"{cidr} is not an IPv{version} range", critical=True)
    if network.prefixlen > _LARGEST_PREFIX[version]:
        raise NetsetupError(field, f"{cidr} is too small: it must leave at least two host bits", critical=True)
    return nat.GuestNet(version, str(network[1]), str(network[2]), network.prefixlen)


def guest_nets(interface: NetPlanInterface, nic: PodNic) -> list[nat.GuestNet]:
    wanted = ((4, interface.vm_network_cidr, "vmNetworkCidr"), (6, interface.vm_ipv6_network_cidr, "vmIpv6NetworkCidr"))
    nets = [guest_net(cidr, version, field) for version, cidr, field in wanted if nic.global_addresses(version)]
    if not nets:
        raise NetsetupError("podInterface", f"{nic.name} has no global address, so there is nothing to masquerade with")
    return nets


def setup(plan: NetPlan, interface: NetPlanInterface, nic: PodNic, position: int) -> Wiring:  # noqa: ARG001
    nets = guest_nets(interface, nic)
    mac = interface.mac.lower() or private_mac(plan.vmi_uid, interface.name)
    steps: list[Step] = [AddLink(nic.bridge, "bridge", BRIDGE_MAC, nic.mtu), SetMtu(nic.bridge, nic.mtu)]
    for net in nets:
        steps += _family_steps(nic, net)
    steps += [SetUp(nic.bridge), *tap_steps(nic, plan, interface)]
    rules = (
        guard.table(nic, _guest(mac, nets)),
        watch.table(nic),
        *(_nat(interface, nic, net) for net in nets),
    )
    steps.append(InstallTables(rules))
    steps.append(StartDhcp(_server(interface, nic, nets)))
    return Wiring(steps, _report(interface, nic, mac, nets))


def _nat(interface: NetPlanInterface, nic: PodNic, net: nat.GuestNet) -> Table:
    return nat.table(nic, net, interface.ports, mesh=interface.mesh)


def _guest(mac: str, nets: list[nat.GuestNet]) -> guard.Guest:
    ipv4, ipv6 = (tuple(net.guest for net in nets if net.version == version) for version in (4, 6))
    return guard.Guest(mac, ipv4, ipv6, router=BRIDGE_LINK_LOCAL.ip if ipv6 else "")


def _family_steps(nic: PodNic, net: nat.GuestNet) -> list[Step]:
    address = AddAddress(nic.bridge, Address(ip=net.gateway, prefix=net.prefix))
    if net.version == 4:
        return [
            address,
            Sysctl(f"net/ipv4/conf/{nic.bridge}/route_localnet", "1"),
            Sysctl("net/ipv4/ip_forward", "1"),
        ]
    # A router ignores advertisements unless told otherwise, and the Pod may have its own route from one.
    keep_route = [Sysctl(f"net/ipv6/conf/{nic.name}/accept_ra", "2")] if nic.accepts_ra else []
    return [
        Sysctl(f"net/ipv6/conf/{nic.bridge}/disable_ipv6", "0"),
        address,
        AddAddress(nic.bridge, BRIDGE_LINK_LOCAL),
        *keep_route,
        Sysctl("net/ipv6/conf/all/forwarding", "1"),
    ]


def _server(interface: NetPlanInterface, nic: PodNic, nets: list[nat.GuestNet]) -> DhcpServer:
    by_version = {net.version: net for net in nets}
    ipv4, ipv6 = by_version.get(4), by_version.get(6)
    options = dhcp_options(nic, interface)
    return DhcpServer(
        name=nic.name,
        interface=nic.bridge,
        address4=Address(ip=ipv4.guest, prefix=ipv4.prefix) if ipv4 else None,
        address6=Address(ip=ipv6.guest, prefix=ipv6.prefix) if ipv6 else None,
        options=replace(options, router=ipv4.gateway if ipv4 else ""),
    )


def _report(interface: NetPlanInterface, nic: PodNic, mac: str, nets: list[nat.GuestNet]) -> NetReportInterface:
    gateways = {net.version: net.gateway for net in nets}
    return NetReportInterface(
        name=interface.name,
        tap=nic.tap,
        mac=mac,
        mtu=nic.mtu,
        bridge=nic.bridge,
        pod_interface=nic.name,
        pod_ips=[address.ip for version in (4, 6) for address in nic.global_addresses(version)],
        guest_ips=[net.guest for net in nets],
        gateway=gateways.get(4, ""),
        gateway_ipv6=gateways.get(6, ""),
    )


def teardown(record: Record) -> list[Step]:
    nic = record.nic
    return [
        StopDhcp(nic.name),
        RemoveTables(tuple((family, name_for(nic)) for family in ("ip", "ip6", watch.FAMILY, guard.FAMILY))),
        RemoveLink(nic.tap, ("tun",)),
        RemoveLink(nic.bridge, ("bridge",)),
        *(Sysctl(name, value) for name, value in record.sysctls.items() if nic.bridge not in name),
    ]
