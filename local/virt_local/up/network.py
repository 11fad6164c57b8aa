"""The network of an instance: a host bridge, one network namespace per node, routes between them, NAT to the outside.

Read what is there, plan what is missing, apply it with iproute2 and nft. Running Pods sit in these namespaces, so a
second run changes nothing that is already right.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from virt_local.up.instance import Instance, Node

_DEADLINE_S = 20.0


class NetworkError(RuntimeError):
    """A network command failed; the text names it."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The links of the host and the named network namespaces."""

    links: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Plan:
    """Lines for `ip -batch`: on the host, and inside each namespace; and the nft script."""

    host: list[str]
    inside: dict[str, list[str]]
    nft: str


def bridge_address_v6(instance: Instance) -> str:
    return f"fd00:10:{instance.network.network_address.packed[1]}::1"


def node_address_v6(instance: Instance, node: Node) -> str:
    return f"fd00:10:{instance.network.network_address.packed[1]}::{10 + node.index}"


def plan_network(instance: Instance, observed: Observed) -> Plan:
    """What to run so that the network stands, given what stands already."""
    host = _bridge_lines(instance, observed)
    inside: dict[str, list[str]] = {}
    for node in instance.nodes:
        host += _join_lines(instance, node, observed)
        inside[node.netns] = _inside_lines(instance, node)
    host += _host_routes(instance)
    return Plan(host, inside, nft_script(instance))


def _bridge_lines(instance: Instance, observed: Observed) -> list[str]:
    bridge = instance.bridge
    lines = [] if bridge in observed.links else [f"link add name {bridge} type bridge"]
    return [
        *lines,
        f"addr replace {instance.bridge_address}/{instance.bridge_prefix} dev {bridge}",
        f"addr replace {bridge_address_v6(instance)}/64 dev {bridge} nodad",
        f"link set {bridge} up",
    ]


def _join_lines(instance: Instance, node: Node, observed: Observed) -> list[str]:
    """A veth pair from the bridge into the node. A pair goes with its namespace, so the name tells enough."""
    if node.veth in observed.links and node.netns in observed.namespaces:
        return [f"link set {node.veth} master {instance.bridge} up"]
    lines = [f"link del {node.veth}"] if node.veth in observed.links else []
    return [
        *lines,
        f"link add name {node.veth} type veth peer name eth0 netns {node.netns}",
        f"link set {node.veth} master {instance.bridge} up",
    ]


def _inside_lines(instance: Instance, node: Node) -> list[str]:
    lines = [
        "link set lo up",
        f"addr replace {node.address}/{instance.bridge_prefix} dev eth0",
        f"addr replace {node_address_v6(instance, node)}/64 dev eth0 nodad",
        "link set eth0 up",
        f"route replace default via {instance.bridge_address} dev eth0",
        f"route replace ::/0 via {bridge_address_v6(instance)} dev eth0",
    ]
    for other in instance.nodes:
        if other.name != node.name:
            lines += _pod_routes(instance, other, "eth0")
    return lines


def _host_routes(instance: Instance) -> list[str]:
    return [line for node in instance.nodes for line in _pod_routes(instance, node, instance.bridge)]


def _pod_routes(instance: Instance, node: Node, device: str) -> list[str]:
    return [
        f"route replace {node.pod_cidr} via {node.address} dev {device}",
        f"route replace {node.pod_cidr_v6} via {node_address_v6(instance, node)} dev {device}",
    ]


def nft_script(instance: Instance) -> str:
    """NAT for what leaves the machine. `add`, then `delete`: an older table is replaced in one transaction."""
    table, network, bridge = instance.nft_table, instance.network, instance.bridge
    return f"""add table ip {table}
delete table ip {table}
table ip {table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {network} ip daddr != {network} oifname != "{bridge}" masquerade
  }}
}}
"""


def observe() -> Observed:
    links = json.loads(_run(["ip", "-j", "link", "show"]) or "[]")
    names = Path("/run/netns")
    namespaces = {path.name for path in names.iterdir()} if names.is_dir() else set()
    return Observed(frozenset(link["ifname"] for link in links), frozenset(namespaces))


def routes() -> list[tuple[str, str]]:
    """(interface, destination) of every IPv4 route."""
    found = json.loads(_run(["ip", "-j", "-4", "route", "show"]) or "[]")
    return [(route.get("dev", ""), route.get("dst", "")) for route in found]


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
    for node in instance.nodes:
        _ensure_namespace(node)
    plan = plan_network(instance, observe())
    _batch(["ip", "-batch", "-"], plan.host)
    for netns, lines in plan.inside.items():
        _forwarding(f"/run/netns/{netns}")
        _batch(["ip", "-n", netns, "-batch", "-"], lines)
    _run(["nft", "-f", "-"], plan.nft)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def tear_down(instance: Instance) -> list[str]:
    """Removes what set_up made, whatever is left of it, and says what it removed."""
    observed, removed = observe(), []
    prefix = f"{instance.name}-node"
    for netns in sorted(name for name in observed.namespaces if name.startswith(prefix)):
        _run(["ip", "netns", "del", netns])
        removed.append(f"network namespace {netns}")
    for link in sorted(_own_links(instance, observed.links)):
        if _link_exists(link):
            _run(["ip", "link", "del", link])
            removed.append(f"link {link}")
    if instance.nft_table in _run(["nft", "list", "tables", "ip"]).split():
        _run(["nft", "delete", "table", "ip", instance.nft_table])
        removed.append(f"nft table {instance.nft_table}")
    return removed


def _own_links(instance: Instance, links: frozenset[str]) -> list[str]:
    veths = [
        link for link in links if link.startswith(f"{instance.name}-n") and link[len(instance.name) + 2 :].isdigit()
    ]
    return [*veths, *([instance.bridge] if instance.bridge in links else [])]


def _link_exists(name: str) -> bool:
    return Path(f"/sys/class/net/{name}").exists()


def _ensure_namespace(node: Node) -> None:
    """A name in /run/netns that is no mounted namespace is a left-over of a reboot: it is made anew."""
    path = Path(node.netns_path)
    if path.exists():
        if _is_namespace(path):
            return
        path.unlink()
    _run(["ip", "netns", "add", node.netns])


def _is_namespace(path: Path) -> bool:
    return any(line.split()[4] == str(path) for line in Path("/proc/self/mountinfo").read_text().splitlines())


def _forwarding(netns_path: str) -> None:
    script = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"
    _run(["nsenter", f"--net={netns_path}", "sh", "-c", script])


def _batch(command: list[str], lines: list[str]) -> None:
    _run(command, "\n".join(lines) + "\n")


def _run(command: list[str], text: str = "") -> str:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise NetworkError(f"{' '.join(command)}: {err}") from err
    if done.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
