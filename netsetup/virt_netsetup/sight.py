"""What the kernel tells beside what a wiring needs: counters of links, neighbours, what a bridge has learnt."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from virt_core.apis.netplan import NAT_IN, NAT_OUT, NetLink, NetNeighbour
from virt_netsetup import guard, watch
from virt_netsetup.firewall import Firewall
from virt_netsetup.model import PodNic
from virt_netsetup.pyroute import IPRoute, NetlinkError
from virt_netsetup.tables import name_for

#: A guest can make up neighbours and MACs; the first ones tell enough.
MOST = 8
_STATES = {
    1: "incomplete",
    2: "reachable",
    4: "stale",
    8: "delay",
    16: "probe",
    32: "failed",
    64: "noarp",
    128: "permanent",
}


class Sight:
    """Of the namespace in which the process is when this is made."""

    def __init__(self) -> None:
        self._netlink = IPRoute(ext_ack=True)

    def close(self) -> None:
        self._netlink.close()

    def link(self, name: str) -> NetLink | None:
        try:
            message = next(iter(self._netlink.link("get", ifname=name)), None)
        except NetlinkError:
            return None
        return None if message is None else link_of(message)

    def neighbours(self, index: int) -> list[NetNeighbour]:
        found: list[NetNeighbour] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            told = self._dump(lambda family=family: self._netlink.neigh("dump", family=family, ifindex=index))
            found += [neighbour_of(message) for message in told if message["ifindex"] == index]
        return [each for each in found if not ipaddress.ip_address(each.ip).is_multicast][:MOST]

    def learnt(self, index: int) -> list[str]:
        """Not those of the bridge itself, which are permanent."""
        told = self._dump(lambda: self._netlink.fdb("dump"))
        macs = [
            str(message.get_attr("NDA_LLADDR") or "")
            for message in told
            if message["ifindex"] == index and not message["state"] & 128
        ]
        return list(dict.fromkeys(mac for mac in macs if mac))[:MOST]

    @staticmethod
    def _dump(ask: Any) -> list[Any]:
        try:
            return list(ask())
        except NetlinkError:
            return []


def link_of(message: Any) -> NetLink:
    stats = message.get_attr("IFLA_STATS64") or message.get_attr("IFLA_STATS") or {}
    return NetLink(
        name=message.get_attr("IFLA_IFNAME"),
        mac=message.get_attr("IFLA_ADDRESS") or "",
        mtu=message.get_attr("IFLA_MTU") or 0,
        up=bool(message["flags"] & 1),
        carrier=bool(message.get_attr("IFLA_CARRIER")),
        **{key: int(stats.get(key) or 0) for key in ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped")},
    )


def neighbour_of(message: Any) -> NetNeighbour:
    return NetNeighbour(
        ip=str(ipaddress.ip_address(message.get_attr("NDA_DST"))),
        mac=message.get_attr("NDA_LLADDR") or "",
        state=_STATES.get(message["state"], ""),
    )


def counters(firewall: Firewall, nic: PodNic) -> dict[str, int]:
    """Of our own tables, by name. A table of a version that did not count has none."""
    found: dict[str, int] = {}
    for family in (guard.FAMILY, watch.FAMILY, "ip", "ip6"):
        for entry in firewall.entries(family, name_for(nic)):
            if "counter" in entry:
                found[entry["counter"]["name"]] = int(entry["counter"]["packets"])
            elif "rule" in entry:
                _translated(entry["rule"].get("expr", []), found)
    return found


def _translated(rule: list[Any], found: dict[str, int]) -> None:
    """The rules that translate addresses count without a name: each connection once."""
    packets = next((e["counter"]["packets"] for e in rule if isinstance(e.get("counter"), dict)), None)
    if packets is None:
        return
    for kind, name in (("masquerade", NAT_OUT), ("dnat", NAT_IN)):
        if any(kind in each for each in rule):
            found[name] = found.get(name, 0) + int(packets)
