"""The network of an instance: a host bridge, one network namespace per node, routes between them, NAT to the outside.

What should stand is a value (a layout for the host, one for each node); `links` makes what is missing of it. Running
Pods sit in these namespaces, so a second run changes nothing that is already right.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import partial

from virt_local.node.cni import pod_bridge, pod_bridge_mac
from virt_local.up import forwarding, isolation, links
from virt_local.up.errors import NetworkError
from virt_local.up.forwarding import Switches
from virt_local.up.instance import Instance, Node
from virt_local.up.links import Address, Bridge, Layout, Route, Veth

_DEADLINE_S = 20.0
_INSIDE = "eth0"
_DNS_PORT = 53


def nodes_v6(instance: Instance) -> str:
    return f"fd00:10:{instance.network.network_address.packed[1]}::/64"


def bridge_address_v6(instance: Instance) -> str:
    return f"fd00:10:{instance.network.network_address.packed[1]}::1"


def node_address_v6(instance: Instance, node: Node) -> str:
    return f"fd00:10:{instance.network.network_address.packed[1]}::{10 + node.index}"


def host_layout(instance: Instance, *, ipv6: bool = True) -> Layout:
    bridge = instance.bridge
    addresses = [Address(bridge, f"{instance.bridge_address}/{instance.bridge_prefix}")]
    addresses += [Address(bridge, f"{bridge_address_v6(instance)}/64")] if ipv6 else []
    return Layout(
        bridges=(Bridge(bridge, group=isolation.BRIDGE_GROUP),),
        veths=(
            *(Veth(node.veth, _INSIDE, node.netns, bridge) for node in instance.nodes),
            Veth(instance.dns_netns, _INSIDE, instance.dns_netns, bridge),
        ),
        addresses=tuple(addresses),
        up=(bridge,),
        routes=(
            *(route for node in instance.nodes for route in _pod_routes(instance, node, bridge, ipv6)),
            *_service_routes(instance, bridge, ipv6),
        ),
    )


def dns_layout(instance: Instance, *, ipv6: bool = True) -> Layout:
    addresses = [Address(_INSIDE, f"{instance.dns_address}/{instance.bridge_prefix}")]
    routes = [Route("0.0.0.0/0", instance.bridge_address, _INSIDE)]
    if ipv6:
        addresses.append(Address(_INSIDE, f"{instance.dns_address_v6}/64"))
        routes.append(Route("::/0", bridge_address_v6(instance), _INSIDE))
    for node in instance.nodes:
        routes += _pod_routes(instance, node, _INSIDE, ipv6)
    return Layout((), (), tuple(addresses), ("lo", _INSIDE), tuple(routes))


def _service_routes(instance: Instance, device: str, ipv6: bool) -> list[Route]:
    """So that this machine finds a way for a Service's address also without a default route. The rules of Services send
    the packet elsewhere, or refuse it, before it goes to the first node."""
    first = instance.nodes[0]
    found = [Route(instance.service_range, first.address, device)]
    return [*found, Route(instance.service_range_v6, node_address_v6(instance, first), device)] if ipv6 else found


def node_layout(instance: Instance, node: Node, *, ipv6: bool = True) -> Layout:
    """The bridge for the Pods is made before the first Pod, with an address of its own: one that followed the lowest of
    its ports would change when Pods come and go, and cut off guests that remember it."""
    pods = pod_bridge(instance.name)
    addresses = [Address(_INSIDE, f"{node.address}/{instance.bridge_prefix}")]
    routes = [Route("0.0.0.0/0", instance.bridge_address, _INSIDE)]
    if ipv6:
        addresses.append(Address(_INSIDE, f"{node_address_v6(instance, node)}/64"))
        routes.append(Route("::/0", bridge_address_v6(instance), _INSIDE))
    for other in instance.nodes:
        if other.name != node.name:
            routes += _pod_routes(instance, other, _INSIDE, ipv6)
    bridge = Bridge(pods, pod_bridge_mac(pods))
    return Layout((bridge,), (), tuple(addresses), ("lo", _INSIDE, pods), tuple(routes))


def _pod_routes(instance: Instance, node: Node, device: str, ipv6: bool) -> list[Route]:
    found = [Route(node.pod_cidr, node.address, device)]
    return [*found, Route(node.pod_cidr_v6, node_address_v6(instance, node), device)] if ipv6 else found


def nft_script(instance: Instance, *, ipv6: bool = True) -> str:
    """NAT for what leaves the machine, and what of the machine itself is closed to Pods. `add`, then `delete`: an older
    table is replaced in one transaction."""
    script = _host_table(instance, "ip", str(instance.network), instance.node_range)
    return script + (_host_table(instance, "ip6", instance.network_v6, nodes_v6(instance)) if ipv6 else "")


def _host_table(instance: Instance, family: str, network: str, nodes: str) -> str:
    table, bridge = instance.nft_table, instance.bridge
    return f"""add table {family} {table}
delete table {family} {table}
table {family} {table} {{
{isolation.host_chains(instance, family, nodes)}\
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    {family} saddr {network} {family} daddr != {network} oifname != "{bridge}" masquerade
  }}
}}
"""


def routes() -> list[tuple[str, str]]:
    """(interface, destination) of every IPv4 route but the default one."""
    return links.routes()


def forward_policy() -> str:
    """What the usual filter table does with packets that pass through: accept, drop, or nothing when there is none."""
    done = subprocess.run(
        ["nft", "-j", "list", "chain", "ip", "filter", "FORWARD"], capture_output=True, timeout=_DEADLINE_S, check=False
    )
    if done.returncode != 0:
        return ""
    chains = [entry["chain"] for entry in json.loads(done.stdout)["nftables"] if "chain" in entry]
    return str(chains[0].get("policy", "")) if chains else ""


def set_up(instance: Instance) -> None:
    ipv6 = forwarding.has_ipv6()
    for netns in (*(node.netns for node in instance.nodes), instance.dns_netns):
        links.ensure_namespace(netns)
    links.establish(host_layout(instance, ipv6=ipv6))
    for node in instance.nodes:
        layout = node_layout(instance, node, ipv6=ipv6)
        links.in_namespace(node.netns, partial(_set_up_inside, layout, node_script(instance, node, ipv6=ipv6)))
    names = partial(_set_up_names, dns_layout(instance, ipv6=ipv6), dns_script(instance, ipv6=ipv6))
    links.in_namespace(instance.dns_netns, names)
    _nft(["-f", "-"], nft_script(instance, ipv6=ipv6))
    Switches().turn_on(instance.bridge)


def node_script(instance: Instance, node: Node, *, ipv6: bool = True) -> str:
    families = ("ip", "ip6") if ipv6 else ("ip",)
    return "".join(isolation.node_table(instance, node, family, pod_bridge(instance.name)) for family in families)


def dns_script(instance: Instance, *, ipv6: bool = True) -> str:
    return "".join(isolation.dns_table(instance, family) for family in (("ip", "ip6") if ipv6 else ("ip",)))


def _set_up_names(layout: Layout, rules: str) -> bool:
    forwarding.open_low_ports_here(_DNS_PORT)
    links.establish(layout)
    _nft(["-f", "-"], rules)
    return True


def _set_up_inside(layout: Layout, rules: str) -> bool:
    forwarding.turn_on_here()
    forwarding.route_bridged_here()
    links.establish(layout)
    _nft(["-f", "-"], rules)
    return True


def tear_down(instance: Instance) -> list[str]:
    """Removes what set_up made, whatever is left of it, and says what it removed."""
    removed = []
    own = (
        name for name in links.namespaces() if name.startswith(f"{instance.name}-node") or name == instance.dns_netns
    )
    for netns in sorted(own):
        links.remove_namespace(netns)
        removed.append(f"network namespace {netns}")
    removed += [f"link {name}" for name in sorted(_own_links(instance, links.names())) if links.remove(name)]
    for family in ("ip", "ip6"):
        there = _nft(["list", "tables", family]).split()
        for table in (instance.nft_table, instance.services_table):
            if table in there:
                _nft(["delete", "table", family, table])
                removed.append(f"nft table {family} {table}")
    if instance.dns_dir.exists():
        shutil.rmtree(instance.dns_dir)
    return removed


def release_forwarding() -> str:
    """After tear_down. Returns why forwarding stays on, or nothing."""
    return Switches().put_back()


def _own_links(instance: Instance, names: frozenset[str]) -> list[str]:
    veths = [
        name for name in names if name.startswith(f"{instance.name}-n") and name[len(instance.name) + 2 :].isdigit()
    ]
    veths += [instance.dns_netns] if instance.dns_netns in names else []
    return [*veths, *([instance.bridge] if instance.bridge in names else [])]


def _nft(arguments: list[str], text: str = "") -> str:
    command = ["nft", *arguments]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise NetworkError(f"{' '.join(command)}: {err}") from err
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
