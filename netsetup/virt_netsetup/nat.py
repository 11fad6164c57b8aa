"""The NAT rules of the masquerade binding, in nftables' JSON form. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from virt_core.apis.netplan import NetPort
from virt_netsetup.model import PodNic, Value
from virt_netsetup.tables import Chain, Expression, Rule, Table, field, match, meta, name_for, one_of, prefix

PRE, POST = "KUBEVIRT_PREINBOUND", "KUBEVIRT_POSTINBOUND"
#: Where the Pod's own programs speak from and to.
_LOOPBACK: dict[int, tuple[Any, ...]] = {4: (prefix("127.0.0.0", 8),), 6: ("::1",)}
#: Where a mesh's proxy speaks from, as far as it is not among them.
_PROXY: dict[int, tuple[Any, ...]] = {4: (), 6: ("::6",)}
#: Ports of the proxy itself: who speaks to it in the Pod does not mean the guest.
MESH_PORTS = (15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090)
#: What a proxy lets by, so that one gets into the guest without the mesh.
_PAST_THE_MESH = NetPort(port=22)
_RETURN: Expression = {"return": None}


class GuestNet(Value, frozen=True):
    """The guest's private network in one family."""

    version: int
    gateway: str
    guest: str
    prefix: int

    @property
    def family(self) -> str:
        return "ip" if self.version == 4 else "ip6"


def table(nic: PodNic, net: GuestNet, ports: Sequence[NetPort], *, mesh: bool = False) -> Table:
    """With `mesh`, a proxy in the Pod takes what comes from outside, and connects to the guest in its stead."""
    chains = (
        Chain("prerouting", "prerouting", -100),
        Chain("input", "input", 100),
        Chain("output", "output", -100),
        Chain("postrouting", "postrouting", 100),
        Chain(PRE),
        Chain(POST),
    )
    rules = [
        ("postrouting", [match(field(net.family, "saddr"), net.guest), {"masquerade": None}]),
        ("prerouting", [match(meta("iifname"), nic.name), {"jump": {"target": PRE}}]),
        ("postrouting", [match(meta("oifname"), nic.bridge), {"jump": {"target": POST}}]),
    ]
    rules += _past_the_proxy(net) if mesh else []
    for matches in _port_matches(ports):
        rules += _inbound(nic, net, matches, mesh)
    return Table(net.family, name_for(nic), chains, tuple((chain, _counted(rule)) for chain, rule in rules))


def _inbound(nic: PodNic, net: GuestNet, ports: list[Expression], mesh: bool) -> list[Rule]:
    """From outside, and from the Pod's own loopback: such packets must look as if the gateway sent them. A proxy takes
    what comes from outside itself, and speaks to the Pod's address."""
    loopback = _LOOPBACK[net.version]
    senders = [*loopback, *(_PROXY[net.version] if mesh else ())]
    receivers = [*loopback, *([address.ip for address in nic.global_addresses(net.version)] if mesh else ())]
    outside: list[Rule] = [] if mesh else [(PRE, [*ports, {"dnat": {"addr": net.guest}}])]
    return [
        *outside,
        (POST, [*ports, match(field(net.family, "saddr"), one_of(*senders)), {"snat": {"addr": net.gateway}}]),
        ("output", [match(field(net.family, "daddr"), one_of(*receivers)), *ports, {"dnat": {"addr": net.guest}}]),
    ]


def _past_the_proxy(net: GuestNet) -> list[Rule]:
    """Before all others: what the proxy does not take, and what is the proxy's own."""
    own = match(field("tcp", "dport"), one_of(*MESH_PORTS))
    return [
        (PRE, [*_port_match(_PAST_THE_MESH), {"dnat": {"addr": net.guest}}]),
        (POST, [own, match(field(net.family, "saddr"), one_of(*_LOOPBACK[net.version])), _RETURN]),
        ("output", [match(field(net.family, "daddr"), one_of(*_LOOPBACK[net.version])), own, _RETURN]),
    ]


def _port_matches(ports: Sequence[NetPort]) -> list[list[Expression]]:
    """Without ports everything goes to the guest."""
    if not ports:
        return [[]]
    return [_port_match(port) for port in ports]


def _port_match(port: NetPort) -> list[Expression]:
    wanted = {"range": [port.port, port.last]} if port.last > port.port else port.port
    return [match(field(port.protocol.lower(), "dport"), wanted)]


def _counted(rule: list[Expression]) -> list[Expression]:
    return [*rule[:-1], {"counter": None}, rule[-1]]
