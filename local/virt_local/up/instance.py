"""One instance of virt-local: every name, address and path follows from a few settings.

So several instances run side by side. Nothing else in this package spells a path, a bridge name or an address.
"""

from __future__ import annotations

import ipaddress
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

DEFAULT_NAME = "vp"
DEFAULT_PORT = 7443
DEFAULT_DATA_DIR = "/var/lib/virtpod"
DEFAULT_NETWORK = "10.244.0.0/16"
MAX_NODES = 99
#: All that is ever found in a data directory; lost+found when it is a file system of its own.
OWN_ENTRIES = frozenset(
    "apiserver images kubeconfig logs lost+found node-info nodes pki run tls volumes".split()  # noqa: SIM905
)

_NAME = re.compile(r"[a-z][a-z0-9]{0,6}")


class SettingsError(ValueError):
    """A setting that cannot work, in words for the person who gave it."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the instance: a network namespace on the bridge, with a Pod subnet of its own."""

    name: str
    index: int
    netns: str
    veth: str
    address: str
    pod_cidr: str
    pod_cidr_v6: str

    @property
    def netns_path(self) -> str:
        return f"/run/netns/{self.netns}"


@dataclass(frozen=True, slots=True)
class Instance:
    """The settings of `virt-local up`, and what follows from them."""

    name: str
    data_dir: Path
    port: int
    node_count: int
    network: ipaddress.IPv4Network
    guests_reach_host: bool = False

    @property
    def bridge(self) -> str:
        return f"{self.name}-br0"

    @property
    def nft_table(self) -> str:
        return f"virtpod_{self.name}"

    @property
    def bridge_address(self) -> str:
        return str(self.network[1])

    @property
    def bridge_prefix(self) -> int:
        return 24

    @property
    def node_range(self) -> str:
        """Where the host and the nodes have their own addresses; the rest of the network is the Pods'."""
        return f"{self.network[0]}/{self.bridge_prefix}"

    @property
    def service_range(self) -> str:
        """The addresses of Services: no link has them, rules turn their packets to Pods."""
        return f"{self.network[224 * 256]}/20"

    @property
    def network_v6(self) -> str:
        return f"{self._prefix_v6}::/48"

    @property
    def service_range_v6(self) -> str:
        return f"{self._prefix_v6}:ffff::/112"

    @property
    def _prefix_v6(self) -> str:
        return f"fd00:10:{self.network.network_address.packed[1]}"

    @property
    def services_table(self) -> str:
        return f"{self.nft_table}_services"

    @property
    def dns_address(self) -> str:
        """Where the names of Services are asked, in a namespace of its own on the bridge."""
        return str(self.network[2])

    @property
    def dns_address_v6(self) -> str:
        return f"{self._prefix_v6}::2"

    @property
    def dns_netns(self) -> str:
        return f"{self.name}-dns"

    @property
    def dns_netns_path(self) -> str:
        return f"/run/netns/{self.dns_netns}"

    @property
    def dns_dir(self) -> Path:
        """What the name server reads, who is a user without rights: the data directory is closed to it."""
        return Path(f"/run/virtpod-dns-{self.name}")

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def node_server(self) -> str:
        """Where the programs inside a node's network namespace find the API."""
        return f"https://{self.bridge_address}:{self.port}"

    @property
    def api_port(self) -> int:
        """virt-api's HTTPS port: 8443 for the default instance."""
        return self.port + 1000

    @property
    def automation_port(self) -> int:
        """virt-api's gRPC port: 8444 for the default instance."""
        return self.port + 1001

    @property
    def automation_address(self) -> str:
        return f"127.0.0.1:{self.automation_port}"

    @property
    def controller_health_port(self) -> int:
        return self.port + 739

    @property
    def nodes(self) -> list[Node]:
        return [self._node(index) for index in range(1, self.node_count + 1)]

    def _node(self, index: int) -> Node:
        return Node(
            name=f"node{index}",
            index=index,
            netns=f"{self.name}-node{index}",
            veth=f"{self.name}-n{index}",
            address=str(self.network[10 + index]),
            pod_cidr=str(ipaddress.ip_network((int(self.network[(100 + index) * 256]), 24))),
            pod_cidr_v6=f"{self._prefix_v6}:{100 + index}::/64",
        )

    # Paths.
    @property
    def pki_dir(self) -> Path:
        return self.data_dir / "pki"

    @property
    def kubeconfig_dir(self) -> Path:
        return self.data_dir / "kubeconfig"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.kubeconfig_dir / "admin.yaml"

    @property
    def tls_dir(self) -> Path:
        return self.data_dir / "tls"

    @property
    def log_dir(self) -> Path:
        return self.data_dir / "logs"

    @property
    def run_dir(self) -> Path:
        return self.data_dir / "run"

    @property
    def image_dir(self) -> Path:
        return self.data_dir / "images"

    @property
    def automation_ca(self) -> Path:
        """Who vouches for virt-api's certificate."""
        return self.pki_dir / "virtpod-ca.crt"

    def node_dir(self, node: str) -> Path:
        return self.data_dir / "nodes" / node

    def log_file(self, component: str) -> Path:
        return self.log_dir / f"{component}.log"


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SettingsError(f"instance name {name!r}: use 1 to 7 lower-case letters and digits, a letter first")


def default_data_dir(name: str) -> str:
    return DEFAULT_DATA_DIR if name == DEFAULT_NAME else f"{DEFAULT_DATA_DIR}-{name}"


def default_network(name: str) -> str:
    """A /16 of its own for each instance name, so that two instances do not meet by accident."""
    if name == DEFAULT_NAME:
        return DEFAULT_NETWORK
    return f"10.{128 + zlib.crc32(name.encode()) % 100}.0.0/16"


def make_instance(
    name: str = DEFAULT_NAME,
    data_dir: str | None = None,
    port: int = DEFAULT_PORT,
    nodes: int = 1,
    network: str | None = None,
    *,
    guests_reach_host: bool = False,
) -> Instance:
    check_name(name)
    if not 1 <= nodes <= MAX_NODES:
        raise SettingsError(f"--nodes {nodes}: use 1 to {MAX_NODES}")
    if not 1 <= port <= 65535 - 1001:
        raise SettingsError(f"--port {port}: use 1 to {65535 - 1001} (virt-api takes the ports 1000 and 1001 above)")
    return Instance(
        name=name,
        data_dir=Path(data_dir or default_data_dir(name)).absolute(),
        port=port,
        node_count=nodes,
        network=_parse_network(network or default_network(name)),
        guests_reach_host=guests_reach_host,
    )


def _parse_network(text: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as err:
        raise SettingsError(f"--network-cidr {text!r}: {err}") from err
    if network.prefixlen != 16:
        raise SettingsError(
            f"--network-cidr {text!r}: a /16 is needed (one /24 for the nodes, one for each node's Pods)"
        )
    return network
