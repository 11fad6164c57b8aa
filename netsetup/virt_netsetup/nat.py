"""The NAT rules of the masquerade binding, in nftables' JSON form. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from virt_core.apis.netplan import NetPort
from virt_netsetup.model import PodNic, Value
from virt_netsetup.tables import Chain, Table

PRE, POST = "KUBEVIRT_PREINBOUND", "KUBEVIRT_POSTINBOUND"
_LOOPBACK = {4: {"prefix": {"addr": "127.0.0.0", "len": 8}}, 6: "::1"}

Expression = dict[str, Any]


class GuestNet(Value, frozen=True):
    """The guest's private network in one family."""

    version: int
    gateway: str
    guest: str
    prefix: int

    @property
    def family(self) -> str:
        return "ip" if self.version == 4 else "ip6"


def table_name(nic: PodNic) -> str:
    """A table of our own: other programs in the Pod may keep theirs in "nat"."""
    return "virtpod_" + nic.name.replace(".", "_").replace("-", "_")


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
        ("postrouting", [_address(net, "saddr", net.guest), {"masquerade": None}]),
        ("prerouting", [_interface("iifname", nic.name), {"jump": {"target": PRE}}]),
        ("postrouting", [_interface("oifname", nic.bridge), {"jump": {"target": POST}}]),
    ]
    for match in _port_matches(ports):
        rules += _inbound(net, match)
    return Table(net.family, table_name(nic), chains, tuple((chain, _counted(rule)) for chain, rule in rules))


def _inbound(net: GuestNet, match: list[Expression]) -> list[tuple[str, list[Expression]]]:
    """From outside, and from the Pod's own loopback: such packets must look as if the gateway sent them."""
    loopback = _LOOPBACK[net.version]
    return [
        (PRE, [*match, {"dnat": {"addr": net.guest}}]),
        (POST, [*match, _address(net, "saddr", loopback), {"snat": {"addr": net.gateway}}]),
        ("output", [_address(net, "daddr", loopback), *match, {"dnat": {"addr": net.guest}}]),
    ]


def _port_matches(ports: Sequence[NetPort]) -> list[list[Expression]]:
    """Without ports everything goes to the guest."""
    if not ports:
        return [[]]
    return [[_match({"payload": {"protocol": port.protocol.lower(), "field": "dport"}}, port.port)] for port in ports]


def _match(left: Any, right: Any) -> Expression:
    return {"match": {"op": "==", "left": left, "right": right}}


def _address(net: GuestNet, field: str, value: Any) -> Expression:
    return _match({"payload": {"protocol": net.family, "field": field}}, value)


def _interface(key: str, name: str) -> Expression:
    return _match({"meta": {"key": key}}, name)


def _counted(rule: list[Expression]) -> list[Expression]:
    return [*rule[:-1], {"counter": None}, rule[-1]]
