"""Is this machine able to run virt-local? Every answer is one sentence with the way out."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from virt_local.up.instance import Instance

CNI_DIRS = ("/usr/lib/cni", "/opt/cni/bin")
_SEARCH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


class PreflightError(RuntimeError):
    """Why `up` cannot go on, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program (any of its names will do), the Debian package that has it, and what it is for."""

    names: tuple[str, ...]
    package: str
    purpose: str
    components_only: bool = False


TOOLS = (
    Tool(("runc",), "runc", "runs the containers"),
    Tool(("conmon",), "conmon", "keeps a container's log and exit code while we restart"),
    Tool(("nft",), "nftables", "lets Pods reach the outside"),
    Tool(("nsenter",), "util-linux", "starts programs in a node's network"),
    Tool(("setpriv",), "util-linux", "takes its rights from the name server"),
    Tool(("dnsmasq",), "dnsmasq-base", "knows the names of Services, and gives guests their addresses"),
    Tool(("libvirtd", "virtqemud"), "libvirt-daemon", "manages QEMU", components_only=True),
    Tool(
        ("qemu-system-x86_64", "qemu-system-aarch64", "qemu-system-s390x"),
        "qemu-system-x86",
        "emulates the guest's machine",
        components_only=True,
    ),
)

Which = Callable[[str], str | None]


def which(name: str) -> str | None:
    return shutil.which(name, path=_SEARCH)


def check_root(uid: int | None = None) -> None:
    if (os.geteuid() if uid is None else uid) != 0:
        raise PreflightError("virt-local needs root to make containers and networks: run it again with sudo.")


def check_tools(*, components: bool = True, find: Which = which, cni_dirs: tuple[str, ...] = CNI_DIRS) -> None:
    """Names all that is missing at once, with one command that installs it."""
    missing = [tool for tool in TOOLS if (components or not tool.components_only) and not any(map(find, tool.names))]
    packages = [tool.package for tool in missing]
    listed = [f"{tool.names[0]} ({tool.purpose})" for tool in missing]
    if not any((Path(directory) / "bridge").exists() for directory in cni_dirs):
        packages.append("containernetworking-plugins")
        listed.append("the CNI plugins (Pod network)")
    if missing or len(packages) > len(missing):
        raise PreflightError(f"Missing: {', '.join(listed)}; install with: apt-get install {' '.join(packages)}")


def check_ports(instance: Instance, *, components: bool = True) -> None:
    wanted = [("127.0.0.1", instance.port, "the API server")]
    if components:
        wanted.append(("127.0.0.1", instance.api_port, "virt-api"))
        wanted.append(("127.0.0.1", instance.automation_port, "virt-api's automation service"))
        wanted.append(("127.0.0.1", instance.controller_health_port, "virt-controller"))
    for host, port, user in wanted:
        if not port_is_free(host, port):
            raise PreflightError(
                f"Port {port} on {host}, which {user} needs, is taken by another program: "
                f"stop that program, or choose other ports with --port N (now {instance.port})."
            )


def port_is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def check_network(instance: Instance, *, routes: Callable[[], list[tuple[str, str]]]) -> None:
    """Refuses a network that another interface already uses. `routes` lists (interface, destination)."""
    for interface, destination in routes():
        if not interface.startswith(f"{instance.name}-") and _overlaps(instance, destination):
            raise PreflightError(
                f"The network {instance.network} is in use here ({destination} on {interface}): "
                "choose another with --network-cidr A.B.0.0/16."
            )


def _overlaps(instance: Instance, destination: str) -> bool:
    try:
        other = ipaddress.ip_network(destination)
    except ValueError:
        return False
    return isinstance(other, ipaddress.IPv4Network) and other.prefixlen > 0 and instance.network.overlaps(other)


def forward_warning(instance: Instance, policy: str) -> str:
    """Another firewall's DROP cannot be undone from a table of ours, so we say what to do."""
    if policy != "drop":
        return ""
    bridge = instance.bridge
    return (
        "Note: a firewall on this machine drops forwarded packets, so guests will not reach the outside. "
        f"Allow it with: iptables -I FORWARD -i {bridge} -j ACCEPT; iptables -I FORWARD -o {bridge} -j ACCEPT"
    )
