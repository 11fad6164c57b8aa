"""The way from a Service's address to its Pods, as one table for nft that replaces the one before. Pure.

The machine and each node have their own: a Pod's packets are turned at its node, and those of the machine and of its
network at the machine. Which Pod gets a connection is chance, or follows from the client's address by a table in which
the Pods share a fixed number of places: when one goes, only its own clients move. Nothing is remembered of a client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from virt_local.controllers.services.frontends import Backend, Frontend

PLACES = 64
_LOOPBACK = {"ip": "127.0.0.0/8", "ip6": "::1"}
_TYPES = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}
_UNREACHABLE = {"ip": "icmp", "ip6": "icmpv6"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table stands. `node` is empty for the machine itself, which is no node. `pods` are the addresses of a
    node's own Pods, whose answers to one another do not come by it; `closed_to` is the link from which the machine
    takes nothing: Pods have their node for that, and the machine's own ports are none of theirs."""

    table: str
    family: str
    services: str
    node: str = ""
    pods: str = ""
    closed_to: str = ""


def render(place: Place, frontends: Iterable[Frontend]) -> str:
    own = [each for each in frontends if each.family == place.family]
    inside = [(each, _inside(place, each)) for each in own]
    outside = [(each, _outside(place, each)) for each in own if each.node_port]
    table = f"{place.family} {place.table}"
    return f"""add table {table}
delete table {table}
table {table} {{
{_map("cluster_ips", f"{_TYPES[place.family]} . inet_proto . inet_service", _cluster_ips(inside))}\
{_map("node_ports", "inet_proto . inet_service", _node_ports(outside))}\
{_chains(place, [*inside, *outside])}\
{_hooks(place)}}}
"""


def _inside(place: Place, frontend: Frontend) -> tuple[Backend, ...]:
    return _here(place, frontend) if frontend.inside_local else frontend.backends


def _outside(place: Place, frontend: Frontend) -> tuple[Backend, ...]:
    return _here(place, frontend) if frontend.outside_local else frontend.backends


def _here(place: Place, frontend: Frontend) -> tuple[Backend, ...]:
    """The machine is every node."""
    return tuple(each for each in frontend.backends if not place.node or each.node == place.node)


def _cluster_ips(found: list[tuple[Frontend, tuple[Backend, ...]]]) -> list[str]:
    return [
        f"{each.address} . {each.protocol} . {each.port} : goto {chain_name(each, ends)}"
        for each, ends in found
        if ends
    ]


def _node_ports(found: list[tuple[Frontend, tuple[Backend, ...]]]) -> list[str]:
    lines = {
        f"{each.protocol} . {each.node_port}": f"goto {chain_name(each, ends)}" for each, ends in found if ends
    }  # Two Services never share one; should it happen, one wins and the table still loads.
    return [f"{key} : {verdict}" for key, verdict in lines.items()]


def _map(name: str, kind: str, elements: list[str]) -> str:
    listed = ",\n      ".join(elements)
    inner = f"\n    elements = {{\n      {listed}\n    }}" if elements else ""
    return f"  map {name} {{\n    type {kind} : verdict{inner}\n  }}\n"


def chain_name(frontend: Frontend, backends: tuple[Backend, ...]) -> str:
    """By what it does, so that equal ways are one chain."""
    text = f"{frontend.family} {frontend.protocol} {frontend.sticky} {backends}"
    return f"to_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _chains(place: Place, found: list[tuple[Frontend, tuple[Backend, ...]]]) -> str:
    chains = {chain_name(each, ends): _chain(place.family, each, ends) for each, ends in found if ends}
    return "".join(f"  chain {name} {{\n    {rule}\n  }}\n" for name, rule in chains.items())


def _chain(family: str, frontend: Frontend, backends: tuple[Backend, ...]) -> str:
    chosen = shares(backends) if frontend.sticky else list(backends)
    how = f"jhash {family} saddr mod {PLACES} seed 0x7670" if frontend.sticky else f"numgen random mod {len(chosen)}"
    places = ", ".join(f"{index} : {each.address} . {each.port}" for index, each in enumerate(chosen))
    return f"meta l4proto {frontend.protocol} dnat {family} to {how} map {{ {places} }}"


def shares(backends: tuple[Backend, ...]) -> list[Backend]:
    """Who has which place: for each place the Pod with the highest number that only the two of them decide."""
    return [max(backends, key=lambda each: _weight(each, place)) for place in range(PLACES)]


def _weight(backend: Backend, place: int) -> bytes:
    return hashlib.sha256(f"{backend.address} {backend.port} {place}".encode()).digest()


def _hooks(place: Place) -> str:
    """A node answers for an address that nobody keeps with a refusal, so that nobody waits."""
    family = place.family
    closed = f'iifname "{place.closed_to}" return\n    ' if place.closed_to else ""
    return f"""  chain services {{
    {closed}\
    {family} daddr . meta l4proto . th dport vmap @cluster_ips
    fib daddr type local {family} daddr != {_LOOPBACK[family]} meta l4proto . th dport vmap @node_ports
  }}
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    jump services
  }}
  chain output {{
    type nat hook output priority -100; policy accept;
    jump services
  }}
{_taken_over(place)}\
  chain refuse {{
    {family} daddr {place.services} meta l4proto tcp reject with tcp reset
    {family} daddr {place.services} reject with {_UNREACHABLE[family]} port-unreachable
  }}
  chain refuse_forwarded {{
    type filter hook forward priority filter; policy accept;
    jump refuse
  }}
  chain refuse_own {{
    type filter hook output priority filter; policy accept;
    jump refuse
  }}
"""


def _taken_over(place: Place) -> str:
    """In the node's own name goes what would be answered past it: between its Pods, and from elsewhere to elsewhere."""
    if not place.node:
        return ""
    family, pods = place.family, place.pods
    return f"""  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ct status dnat {family} saddr {pods} {family} daddr {pods} masquerade
    ct status dnat {family} saddr != {pods} {family} daddr != {pods} masquerade
  }}
"""
