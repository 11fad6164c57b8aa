"""Counters of the leases that a guest was given, on their way out of the Pod's DHCP server. Pure.

dnsmasq writes no file and says nothing. What it gave is known from its answers: the kind of a DHCP message stands right
behind the fixed part of it, since dnsmasq puts that option first. Nothing that the guest sends passes these rules.
"""

from __future__ import annotations

from virt_core.apis.netplan import LEASE_GIVEN, LEASE_GIVEN6, LEASE_REFUSED
from virt_netsetup.model import PodNic
from virt_netsetup.tables import Chain, Expression, Rule, Table, count, field, match, meta, name_for

FAMILY = "inet"
_CHAIN = "leases"
# Behind the header of UDP, 236 bytes and the cookie: option 53, one byte long.
_KIND4: Expression = {"payload": {"base": "th", "offset": (8 + 240) * 8, "len": 24}}
_ACK, _NAK = "0x350105", "0x350106"
_KIND6: Expression = {"payload": {"base": "th", "offset": 8 * 8, "len": 8}}
_REPLY6 = "0x7"


def table(nic: PodNic) -> Table:
    out = match(meta("oifname"), nic.bridge)
    ipv4 = [out, match(field("udp", "sport"), 67), match(field("udp", "dport"), 68)]
    ipv6 = [out, match(field("udp", "sport"), 547), match(field("udp", "dport"), 546)]
    rules: list[Rule] = [
        (_CHAIN, [*ipv4, match(_KIND4, _ACK), count(LEASE_GIVEN)]),
        (_CHAIN, [*ipv4, match(_KIND4, _NAK), count(LEASE_REFUSED)]),
        (_CHAIN, [*ipv6, match(_KIND6, _REPLY6), count(LEASE_GIVEN6)]),
    ]
    return Table(FAMILY, name_for(nic), (Chain(_CHAIN, "output", kind="filter"),), tuple(rules))
