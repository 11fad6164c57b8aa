"""The NAT rules of the masquerade binding, in nftables' JSON form. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from virt_core.apis.netplan import NetPort
from virt_netsetup.model import PodNic, Value
from virt_netsetup.tables import Chain, Expression, Rule, Table, field, match, meta, name_for, prefix

PRE, POST = "KUBEVIRT_PREINBOUND", "KUBEVIRT_POSTINBOUND"
_LOOPBACK = {4: prefix("127.0.0.0", 8), 6: "::1"}


class GuestNet(Value, frozen=True):
    """The guest's private network in one family."""

    version: int
    gateway: str
    guest: str
    prefix: int

    @property
    def family(self) -> str:
        return "ip" if self.version == 4 else "ip6"


def table(nic: PodNic, net: GuestNet, ports: Sequence[NetPort]) -> Table:
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
    for matches in _port_matches(ports):
        rules += _inbound(net, matches)
    return Table(net.family, name_for(nic), chains, tuple((chain, _counted(rule)) for chain, rule in rules))


def _inbound(net: GuestNet, ports: list[Expression]) -> list[Rule]:
    """From outside, and from the Pod's own loopback: such packets must look as if the gateway sent them."""
    loopback = _LOOPBACK[net.version]
    return [
        (PRE, [*ports, {"dnat": {"addr": net.guest}}]),
        (POST, [*ports, match(field(net.family, "saddr"), loopback), {"snat": {"addr": net.gateway}}]),
        ("output", [match(field(net.family, "daddr"), loopback), *ports, {"dnat": {"addr": net.guest}}]),
    ]


def _port_matches(ports: Sequence[NetPort]) -> list[list[Expression]]:
    """Without ports everything goes to the guest."""
    if not ports:
        return [[]]
    return [[match(field(port.protocol.lower(), "dport"), port.port)] for port in ports]


def _counted(rule: list[Expression]) -> list[Expression]:
    return [*rule[:-1], {"counter": None}, rule[-1]]
