"""Where everything of a cluster is: names, addresses and paths. Pure, so that every other file asks here.

A cluster owns one /16 (10.N.0.0/16 and fd00:10:N::/48): the bridge and the nodes in the first /24, Pods and Services in
ranges of their own. The API server listens on the bridge; what nobody else may reach (etcd, the controllers' own ports)
listens on a loopback address that carries the same N, so clusters of other names never collide.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import ClusterError

DEFAULT_NAME = "virtpod"
DEFAULT_OCTET = 240
#: Second bytes for clusters with other names; virt-local and its tests use others.
OTHER_OCTETS = tuple(range(225, 240))
STATE_ROOT = Path("/var/lib/virtpod-cluster")
API_PORT = 6443
MAX_NODES = 20
DOMAIN = "cluster.local"
_NAME = re.compile(r"[a-z][a-z0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster: one network, mount and process namespace."""

    index: int
    cluster: str
    octet: int

    @property
    def name(self) -> str:
        return f"node{self.index}"

    @property
    def netns(self) -> str:
        return f"{self.cluster}-k{self.name}"

    @property
    def netns_path(self) -> Path:
        return Path("/run/netns", self.netns)

    @property
    def veth(self) -> str:
        return f"{self.cluster}-k{self.index}"

    @property
    def address(self) -> str:
        return f"10.{self.octet}.0.{10 + self.index}"

    @property
    def address_v6(self) -> str:
        return f"fd00:10:{self.octet}::{10 + self.index}"

    @property
    def pod_cidr(self) -> str:
        return f"10.{self.octet}.{100 + self.index}.0/24"

    @property
    def pod_cidr_v6(self) -> str:
        return f"fd00:10:{self.octet}:{0x100 + self.index:x}::/64"


@dataclass(frozen=True, slots=True)
class Layout:
    name: str = DEFAULT_NAME
    octet: int = DEFAULT_OCTET
    node_count: int = 1
    ipv6: bool = True
    root: Path = STATE_ROOT

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(Node(index, self.name, self.octet) for index in range(1, self.node_count + 1))

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes)
        raise ClusterError(f"The cluster {self.name} has no node {name!r}; it has {known}.")

    # Addresses.

    @property
    def network(self) -> str:
        return f"10.{self.octet}.0.0/16"

    @property
    def network_v6(self) -> str:
        return f"fd00:10:{self.octet}::/48"

    @property
    def bridge(self) -> str:
        return f"{self.name}-kbr"

    @property
    def bridge_address(self) -> str:
        return f"10.{self.octet}.0.1"

    @property
    def bridge_address_v6(self) -> str:
        return f"fd00:10:{self.octet}::1"

    @property
    def private_address(self) -> str:
        """For what only the control plane itself may reach."""
        return f"127.0.{self.octet}.1"

    @property
    def nft_table(self) -> str:
        return f"virtpod_cluster_{self.name}"

    @property
    def pod_cidrs(self) -> tuple[str, ...]:
        return self._families(f"10.{self.octet}.64.0/18", f"fd00:10:{self.octet}:100::/56")

    @property
    def service_cidrs(self) -> tuple[str, ...]:
        return self._families(f"10.{self.octet}.192.0/20", f"fd00:10:{self.octet}:f000::/112")

    @property
    def api_service_address(self) -> str:
        """The first address of the range, which Kubernetes gives to the Service of the API server itself."""
        return f"10.{self.octet}.192.1"

    @property
    def dns_address(self) -> str:
        return self.bridge_address

    @property
    def server(self) -> str:
        return f"https://{self.bridge_address}:{API_PORT}"

    def _families(self, four: str, six: str) -> tuple[str, ...]:
        return (four, six) if self.ipv6 else (four,)

    # Paths.

    @property
    def state(self) -> Path:
        return self.root / self.name

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "admin.kubeconfig"

    @property
    def run(self) -> Path:
        return self.state / "run"

    @property
    def etcd(self) -> Path:
        return self.state / "etcd"

    def node_dir(self, node: Node) -> Path:
        return self.state / "nodes" / node.name

    def component_kubeconfig(self, component: str) -> Path:
        return self.pki / f"{component}.kubeconfig"

    def log(self, component: str) -> Path:
        return self.state / "logs" / f"{component}.log"

    @property
    def cgroup(self) -> str:
        """Below which every node has its own, in every hierarchy."""
        return f"virtpod-cluster-{self.name}"

    def node_cgroup(self, node: Node) -> str:
        return f"{self.cgroup}/{node.name}"


def make_layout(name: str, octet: int, nodes: int, *, ipv6: bool, root: Path = STATE_ROOT) -> Layout:
    check_name(name)
    if not 1 <= nodes <= MAX_NODES:
        raise ClusterError(f"NODES must be between 1 and {MAX_NODES}, not {nodes}.")
    return Layout(name, octet, nodes, ipv6, root)


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ClusterError(
            f"A cluster's name is 1 to 9 small letters and digits and starts with a letter, because links are named "
            f"after it; {name!r} is not."
        )


def save(layout: Layout) -> None:
    plain = {**asdict(layout), "root": str(layout.root)}
    layout.state.mkdir(parents=True, exist_ok=True, mode=0o755)
    temporary = layout.state / ".settings.json.new"
    temporary.write_text(json.dumps(plain) + "\n")
    temporary.replace(layout.state / "settings.json")


def claimed_octets(root: Path = STATE_ROOT) -> set[int]:
    """Of all clusters that there are, as far as their settings can be read."""
    found = set()
    for path in root.glob("*/settings.json"):
        try:
            found.add(int(json.loads(path.read_text())["octet"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def load(name: str, root: Path = STATE_ROOT) -> Layout | None:
    """What the last start of this cluster wrote down; nothing: there is no such cluster."""
    try:
        plain = json.loads((root / name / "settings.json").read_text())
        return Layout(**{**plain, "root": Path(plain["root"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as err:
        raise ClusterError(f"{root / name}/settings.json cannot be read: remove it with `make cluster-down`.") from err
