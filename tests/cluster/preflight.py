"""Can this machine run a cluster? Every answer is one sentence with the way out."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from .commands import Program
from .configs import CNI_DIRS
from .errors import ClusterError

#: Program → Debian package.
TOOLS = {"nsenter": "util-linux", "unshare": "util-linux", "nft": "nftables", "awk": "mawk", "gcc": "gcc"}
_SEARCH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
_CAP_SYS_RESOURCE = 24
_IP_FREEBIND = 15

Which = Callable[[str], str | None]


def check_root(uid: int | None = None) -> None:
    if (os.geteuid() if uid is None else uid) != 0:
        raise ClusterError("The cluster needs root, for namespaces and mounts: run it again with sudo.")


def _which(name: str) -> str | None:
    return shutil.which(name, path=_SEARCH)


def check_tools(find: Which = _which, cni_dirs: Iterable[str] = CNI_DIRS) -> None:
    """Names all that is missing at once."""
    packages = {package for tool, package in TOOLS.items() if find(tool) is None}
    if not any(Path(directory, "bridge").exists() for directory in cni_dirs):
        packages.add("containernetworking-plugins")
    if packages:
        raise ClusterError(f"Programs are missing here: apt-get install {' '.join(sorted(packages))}")


def check_ports(programs: Iterable[Program]) -> None:
    for program in programs:
        for address, port in program.listens:
            if not port_is_free(address, port):
                raise ClusterError(
                    f"Port {port} on {address}, which {program.name} needs, is taken by another program: stop that one."
                )


def port_is_free(address: str, port: int) -> bool:
    """Of TCP and UDP, also before the address exists here: a program that listens on all addresses has it."""
    return all(_can_bind(kind, address, port) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM))


def _can_bind(kind: socket.SocketKind, address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, kind) as probe:
        if kind == socket.SOCK_STREAM:  # Only so is a port free whose last connections are still fading.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        try:
            probe.bind((address, port))
            if kind == socket.SOCK_STREAM:
                probe.listen(1)
        except OSError:
            return False
    return True


def may_raise_priority(status: str | None = None) -> bool:
    """CAP_SYS_RESOURCE: even root may lack it in a container."""
    text = Path("/proc/self/status").read_text() if status is None else status
    effective = next(line.split()[1] for line in text.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> _CAP_SYS_RESOURCE & 1)
