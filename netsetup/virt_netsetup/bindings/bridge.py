"""Bridge: the guest takes over the Pod's addresses; its frames go straight to the Pod's network.

The Pod's NIC becomes a port of the in-Pod bridge. A dummy with the NIC's old name keeps MAC and addresses, so that the
CNI plugin's CHECK finds what it made. The guest gets the IPv4 address by DHCP; IPv6 is left to the network's routers,
because only a router can advertise itself.

The managed TAP of a binding plugin is the same without DHCP: who answers the guest is the plugin's affair.
"""

from __future__ import annotations

from msgspec.structs import replace

from virt_core.apis.netplan import NetPlan, NetPlanInterface, NetReportInterface
from virt_netsetup import guard, watch
from virt_netsetup.bindings.wiring import Wiring, dhcp_options, private_mac, tap_steps
from virt_netsetup.dhcpserver import DhcpServer
from virt_netsetup.linksteps import AddAddress, AddLink, RemoveLink, SetMtu, SetUp
from virt_netsetup.model import Address, NetsetupError, PodNic, Record
from virt_netsetup.nicsteps import RestoreNic, TakeNic
from virt_netsetup.steps import InstallTables, RemoveTables, StartDhcp, Step, StopDhcp, Sysctl
from virt_netsetup.tables import name_for

# Kernels are built without dummies here and there; a bridge without ports keeps an address as well.
HOLDER_KINDS = ("dummy", "bridge")
#: Links that do not pass on what is for another MAC behind them.
DEAF_KINDS = ("macvlan", "ipvlan")


def renamed(nic: PodNic) -> str:
    return f"{nic.short_name}-nic"


def setup(plan: NetPlan, interface: NetPlanInterface, nic: PodNic, position: int) -> Wiring:
    bridged = managed_tap(plan, interface, nic, position)
    ipv4 = nic.global_addresses(4)
    if not ipv4:
        return bridged
    # The bridge goes up when it has its address, and the server starts when it is up.
    *steps, up = bridged.steps
    steps += [
        AddAddress(nic.bridge, Address(ip=f"169.254.75.1{position}", prefix=32)),
        up,
        StartDhcp(_server(interface, nic, ipv4[0])),
    ]
    return replace(bridged, steps=steps)


def managed_tap(plan: NetPlan, interface: NetPlanInterface, nic: PodNic, position: int) -> Wiring:  # noqa: ARG001
    if nic.kind in DEAF_KINDS:
        words = f"{nic.name} is a {nic.kind}, which takes frames for its own MAC only and so has none for a guest"
        raise NetsetupError("binding", f"{words}; use a network by the bridge plugin", critical=True)
    mac = private_mac(plan.vmi_uid, interface.name, "bridge")
    steps: list[Step] = [
        AddLink(nic.bridge, "bridge", mac, nic.mtu),
        SetMtu(nic.bridge, nic.mtu),
        TakeNic(nic, renamed(nic), mac, nic.bridge),
        # Another NIC may have made the Pod a router; this network is bridged, and nobody on it gets through the Pod.
        *(Sysctl(f"net/{family}/conf/{nic.bridge}/forwarding", "0", optional=True) for family in ("ipv4", "ipv6")),
        *tap_steps(nic, plan, interface),
        InstallTables((guard.table(nic, _guest(interface, nic)), watch.table(nic))),
        *_holder(nic),
        *([Sysctl("net/ipv4/conf/all/arp_ignore", "1")] if nic.global_addresses(4) else []),
        SetUp(nic.bridge),
    ]
    return Wiring(steps, _report(interface, nic))


def guest_mac(interface: NetPlanInterface, nic: PodNic) -> str:
    return interface.mac.lower() or nic.mac


def _guest(interface: NetPlanInterface, nic: PodNic) -> guard.Guest:
    """The Pod's addresses are the guest's, and no others: on this network it has neighbours."""
    ipv4, ipv6 = (tuple(address.ip for address in nic.global_addresses(version)) for version in (4, 6))
    return guard.Guest(guest_mac(interface, nic), ipv4, ipv6)


def _holder(nic: PodNic) -> list[Step]:
    return [
        AddLink(nic.name, HOLDER_KINDS[0], nic.mac, nic.mtu, fallback=HOLDER_KINDS[1]),
        SetUp(nic.name),
        *(AddAddress(nic.name, address) for address in nic.addresses if address.is_global),
    ]


def gateway(nic: PodNic) -> str:
    """The next hop of the default route, or of the first route that has one."""
    hops = [route for route in nic.routes if route.version == 4 and route.gateway]
    hops.sort(key=lambda route: route.destination != "")
    return hops[0].gateway if hops else ""


def _server(interface: NetPlanInterface, nic: PodNic, address: Address) -> DhcpServer:
    routes = [
        (route.destination, route.gateway) for route in nic.own_routes if route.version == 4 and route.destination
    ]
    return DhcpServer(
        name=nic.name,
        interface=nic.bridge,
        address4=address,
        mac=guest_mac(interface, nic),
        options=replace(dhcp_options(nic, interface), router=gateway(nic), routes=tuple(routes)),
    )


def _report(interface: NetPlanInterface, nic: PodNic) -> NetReportInterface:
    addresses = [address.ip for version in (4, 6) for address in nic.global_addresses(version)]
    return NetReportInterface(
        name=interface.name,
        tap=nic.tap,
        mac=guest_mac(interface, nic),
        mtu=nic.mtu,
        bridge=nic.bridge,
        pod_interface=nic.name,
        pod_ips=addresses,
        guest_ips=list(addresses),
        gateway=gateway(nic),
    )


def teardown(record: Record) -> list[Step]:
    """Gives the Pod its NIC back as it was."""
    nic = record.nic
    return [
        StopDhcp(nic.name),
        RemoveTables(tuple((family, name_for(nic)) for family in (watch.FAMILY, guard.FAMILY))),
        RemoveLink(nic.tap, ("tun",)),
        RemoveLink(nic.bridge, ("bridge",)),
        RemoveLink(nic.name, HOLDER_KINDS),
        RestoreNic(nic),
        *(Sysctl(name, value) for name, value in record.sysctls.items()),
    ]
