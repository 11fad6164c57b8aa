"""What a guest may put into its TAP: frames of its own MAC, with the addresses that it was given. Pure.

The rules stand at the TAP's own ingress, before the bridge sees a frame, so they hold for what is bridged, routed and
delivered in the Pod alike. What is not allowed here is dropped, protocols that we do not know included. Whatever is
dropped is counted by its reason, and so are a guest's requests for a lease: honest frames pass no counter otherwise.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from virt_core.apis.netplan import (
    DROPPED_ARP,
    DROPPED_IPV4,
    DROPPED_IPV6,
    DROPPED_LOOPBACK,
    DROPPED_MAC,
    DROPPED_OTHER,
    DROPPED_SERVER,
    DROPPED_VLAN,
    LEASE_ASKED,
)
from virt_netsetup.model import PodNic, Value
from virt_netsetup.tables import Chain, Expression, Rule, Table, count, field, match, meta, name_for, one_of, prefix

FAMILY = "netdev"
_FRAME, _ARP, _IPV4, _IPV6 = "from_guest", "arp", "ipv4", "ipv6"
# QEMU announces a machine that has moved by RARP, which has no address in it but the MAC.
_RARP = 0x8035
_NOBODY4, _NOBODY6 = "0.0.0.0", "::"
_SOLICIT, _ADVERT = "nd-neighbor-solicit", "nd-neighbor-advert"
# Behind the first piece of a packet whose next header is none of a transport protocol anything could be hidden.
_EXTENSIONS = (0, 43, 44, 60)
_MLD = (131, 132, 143)
_LINK_LOCAL = "fe80::"

_ACCEPT: Expression = {"accept": None}


def _drop(reason: str) -> list[Expression]:
    return [count(reason), {"drop": None}]


class Guest(Value, frozen=True):
    """Who the guest is. `router` is its own side of the link, where it is the only guest: there it may choose its
    link-local address, as many systems do, but not take the router's. Elsewhere it has the one of its MAC."""

    mac: str
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    router: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        return (*self.ipv4, *self.ipv6)


def link_local(mac: str) -> str:
    """The address that a MAC gives itself (EUI-64)."""
    parts = bytearray.fromhex(mac.replace(":", ""))
    parts[0] ^= 2
    return str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + parts[:3] + b"\xff\xfe" + parts[3:]))


def table(nic: PodNic, guest: Guest) -> Table:
    chains = (
        Chain(_FRAME, "ingress", kind="filter", policy="drop", device=nic.tap),
        *(Chain(name) for name in (_ARP, _IPV4, _IPV6)),
    )
    rules = [
        *_rules(_FRAME, _frame(guest)),
        *_rules(_ARP, _arp(guest)),
        *_rules(_IPV4, _ipv4(guest)),
        *_rules(_IPV6, _ipv6(guest)),
    ]
    return Table(FAMILY, name_for(nic), chains, tuple(rules))


def _rules(chain: str, rules: list[list[Expression]]) -> list[Rule]:
    return [(chain, rule) for rule in rules]


def _frame(guest: Guest) -> list[list[Expression]]:
    protocols = (("arp", _ARP), ("ip", _IPV4), ("ip6", _IPV6))
    return [
        [match(field("ether", "saddr"), guest.mac, "!="), *_drop(DROPPED_MAC)],
        [match(field("ether", "type"), one_of("8021q", "8021ad")), *_drop(DROPPED_VLAN)],
        *([match(meta("protocol"), name), {"goto": {"target": chain}}] for name, chain in protocols),
        [match(meta("protocol"), _RARP), _ACCEPT],
        _drop(DROPPED_OTHER),
    ]


def _arp(guest: Guest) -> list[list[Expression]]:
    rules = [[match(field("arp", "saddr ether"), guest.mac, "!="), *_drop(DROPPED_MAC)]]
    if not guest.addresses:
        return [*rules, [_ACCEPT]]
    if guest.ipv4:
        probe = [match(field("arp", "operation"), "request"), match(field("arp", "saddr ip"), _NOBODY4)]
        rules += [[*probe, _ACCEPT], [match(field("arp", "saddr ip"), one_of(*guest.ipv4)), _ACCEPT]]
    return [*rules, _drop(DROPPED_ARP)]


def _ipv4(guest: Guest) -> list[list[Expression]]:
    """Towards 127/8 as well: with route_localnet, which the Pod's own connections need, it would reach the Pod's."""
    rules = [
        [match(field("ip", "daddr"), prefix("127.0.0.0", 8)), *_drop(DROPPED_LOOPBACK)],
        [match(field("udp", "sport"), 67), *_drop(DROPPED_SERVER)],
    ]
    if not guest.addresses:
        return [*rules, [_ACCEPT]]
    if guest.ipv4:
        dhcp = [match(field("udp", "sport"), 68), match(field("udp", "dport"), 67)]
        rules += [
            [match(field("ip", "saddr"), _NOBODY4), *dhcp, count(LEASE_ASKED), _ACCEPT],
            [match(field("ip", "saddr"), one_of(*guest.ipv4)), _ACCEPT],
        ]
    return [*rules, _drop(DROPPED_IPV4)]


def _ipv6(guest: Guest) -> list[list[Expression]]:
    rules = [
        [match({"exthdr": {"name": "frag", "field": "nexthdr"}}, one_of(*_EXTENSIONS)), *_drop(DROPPED_OTHER)],
        [match(field("icmpv6", "type"), one_of("nd-router-advert", "nd-redirect")), *_drop(DROPPED_SERVER)],
        [match(field("udp", "sport"), 547), *_drop(DROPPED_SERVER)],
    ]
    if not guest.addresses:
        return [*rules, [_ACCEPT]]
    nobody = match(field("ip6", "saddr"), _NOBODY6)
    rules += [[match(field("ip6", "saddr"), guest.router), *_drop(DROPPED_SERVER)]] if guest.router else []
    rules += _targets(guest, [nobody, match(field("icmpv6", "type"), _SOLICIT)])
    rules += [[nobody, match(field("icmpv6", "type"), one_of(*_MLD)), _ACCEPT]]
    sender = match(field("ip6", "saddr"), one_of(*_own(guest)))
    rules += _targets(guest, [sender, match(field("icmpv6", "type"), _ADVERT)])
    rules += [[match(field("icmpv6", "type"), _ADVERT), *_drop(DROPPED_IPV6)]]
    return [*rules, [sender, _ACCEPT], _drop(DROPPED_IPV6)]


def _own(guest: Guest) -> list[Any]:
    return [*guest.ipv6, prefix(_LINK_LOCAL, 64) if guest.router else link_local(guest.mac)]


def _targets(guest: Guest, message: list[Expression]) -> list[list[Expression]]:
    """The message, when the address that it is about is the guest's own."""
    own = [*guest.ipv6] if guest.router else [*guest.ipv6, link_local(guest.mac)]
    rules = [[*message, match(_target(128), one_of(*map(_number, own))), _ACCEPT]] if own else []
    if guest.router:
        near = match(_target(64), _number(_LINK_LOCAL)[:18])
        rules += [[*message, near, match(_target(128), _number(guest.router), "!="), _ACCEPT]]
    return rules


def _target(bits: int) -> Expression:
    """Where the address stands in a solicitation or an advertisement; libnftables 1.0.6 has no name for it."""
    return {"payload": {"base": "th", "offset": 64, "len": bits}}


def _number(address: str) -> str:
    return "0x" + ipaddress.IPv6Address(address).packed.hex()
