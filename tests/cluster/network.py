"""The cluster's network: a bridge on the machine, a namespace for each node, routes between their Pods, NAT to the
outside. virt-local makes the same for its nodes; the tools are its own, only the plan differs."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Collection
from functools import partial

from virt_local.node.cni import pod_bridge_mac
from virt_local.up import forwarding, links
from virt_local.up.forwarding import Switches
from virt_local.up.links import Address, Bridge, Route, Veth
from virt_local.up.links import Layout as Plan

from .configs import POD_BRIDGE
from .errors import ClusterError
from .layout import DEFAULT_NAME, DEFAULT_OCTET, OTHER_OCTETS, Layout, Node

_INSIDE = "eth0"
_DEADLINE_S = 20.0


def host_plan(layout: Layout) -> Plan:
    bridge = layout.bridge
    addresses = [Address(bridge, f"{layout.bridge_address}/24")]
    addresses += [Address(bridge, f"{layout.bridge_address_v6}/64")] if layout.ipv6 else []
    routes = [route for node in layout.nodes for route in _pod_routes(layout, node, bridge)]
    # Services are reached by the first node, whose kube-proxy knows them: the machine itself has none.
    first = layout.nodes[0]
    routes += [Route(cidr, first.address_v6 if ":" in cidr else first.address, bridge) for cidr in layout.service_cidrs]
    veths = tuple(Veth(node.veth, _INSIDE, node.netns, bridge) for node in layout.nodes)
    return Plan((Bridge(bridge, pod_bridge_mac(bridge)),), veths, tuple(addresses), (bridge,), tuple(routes))


def node_plan(layout: Layout, node: Node) -> Plan:
    """The bridge for the Pods is made before the first Pod and with a fixed address: one that followed the lowest of
    its ports would change when Pods come and go, and cut off guests that remember it."""
    addresses = [Address(_INSIDE, f"{node.address}/24")]
    routes = [Route("0.0.0.0/0", layout.bridge_address, _INSIDE)]
    if layout.ipv6:
        addresses.append(Address(_INSIDE, f"{node.address_v6}/64"))
        routes.append(Route("::/0", layout.bridge_address_v6, _INSIDE))
    for other in layout.nodes:
        if other.index != node.index:
            routes += _pod_routes(layout, other, _INSIDE)
    bridge = Bridge(POD_BRIDGE, pod_bridge_mac(f"{layout.name}-{node.name}"))
    return Plan((bridge,), (), tuple(addresses), ("lo", _INSIDE, POD_BRIDGE), tuple(routes))


def _pod_routes(layout: Layout, node: Node, device: str) -> list[Route]:
    found = [Route(node.pod_cidr, node.address, device)]
    return [*found, Route(node.pod_cidr_v6, node.address_v6, device)] if layout.ipv6 else found


def nft_script(layout: Layout) -> str:
    """`add`, then `delete`: an older table is replaced in one transaction."""
    script = _nat("ip", layout.nft_table, layout.network, layout.bridge)
    return script + (_nat("ip6", layout.nft_table, layout.network_v6, layout.bridge) if layout.ipv6 else "")


def _nat(family: str, table: str, network: str, bridge: str) -> str:
    return f"""add table {family} {table}
delete table {family} {table}
table {family} {table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    {family} saddr {network} {family} daddr != {network} oifname != "{bridge}" masquerade
  }}
}}
"""


def choose_octet(name: str, routes: list[tuple[str, str]], claimed: Collection[int] = ()) -> int:
    """The default cluster has its fixed network; another one takes the first that no route of the machine mentions and
    no other cluster has claimed, whose routes may be still to come."""
    candidates = (DEFAULT_OCTET,) if name == DEFAULT_NAME else OTHER_OCTETS
    for octet in candidates:
        if octet not in claimed and not _user(Layout(name, octet), routes):
            return octet
    tried = ", ".join(Layout(name, octet).network for octet in candidates)
    user = _user(Layout(name, candidates[0]), routes) or "claimed by another cluster"
    raise ClusterError(f"The network {tried} is in use here ({user}): free it, or take another cluster down.")


def _user(layout: Layout, routes: list[tuple[str, str]]) -> str:
    own = ipaddress.ip_network(layout.network)
    for interface, destination in routes:
        other = ipaddress.ip_network(destination, strict=False)
        if interface != layout.bridge and isinstance(other, ipaddress.IPv4Network) and own.overlaps(other):
            return f"{destination} on {interface}"
    return ""


def set_up(layout: Layout) -> None:
    for node in layout.nodes:
        links.ensure_namespace(node.netns)
    links.establish(host_plan(layout))
    for node in layout.nodes:
        links.in_namespace(node.netns, partial(_inside, node_plan(layout, node)))
    _nft(["-f", "-"], nft_script(layout))
    Switches().turn_on(layout.bridge)


def _inside(plan: Plan) -> bool:
    forwarding.turn_on_here()
    links.establish(plan)
    return True


def tear_down(layout: Layout) -> list[str]:
    """Removes whatever is left of it and says what that was."""
    removed = []
    for name in own_namespaces(layout):
        links.remove_namespace(name)
        removed.append(f"network namespace {name}")
    removed += [f"link {name}" for name in own_links(layout) if links.remove(name)]
    for table in own_tables(layout):
        _nft(["delete", "table", *table.split()])
        removed.append(f"nft table {table}")
    Switches().put_back()
    return removed


def own_namespaces(layout: Layout) -> list[str]:
    return sorted(name for name in links.namespaces() if name.startswith(f"{layout.name}-knode"))


def own_links(layout: Layout) -> list[str]:
    """The veths first: a bridge goes more quietly without ports."""
    prefix = f"{layout.name}-k"
    names = links.names()
    veths = sorted(name for name in names if name.startswith(prefix) and name[len(prefix) :].isdigit())
    return [*veths, *([layout.bridge] if layout.bridge in names else [])]


def own_tables(layout: Layout) -> list[str]:
    words = [line.split() for line in _nft(["list", "tables"]).splitlines()]
    return [f"{family} {name}" for _, family, name in words if name == layout.nft_table]


def _nft(arguments: list[str], text: str = "") -> str:
    command = ["nft", *arguments]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise ClusterError(f"{' '.join(command)}: {err}") from err
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
