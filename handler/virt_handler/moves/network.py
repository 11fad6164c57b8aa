"""By which of its addresses a node is reached by machines that move."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

#: The interface of a network that is kept for moves; the chart gives it to virt-handler's Pod.
INTERFACE = "migration0"

_SIOCGIFADDR = 0x8915
_GLOBAL_SCOPE = "00"


class NotOnNetworkError(OSError):
    """A later try finds the same: the network is given to a Pod when it is made."""


def arrival_address(usual: str, network: str) -> str:
    """`network` is the cluster's `migrations.network`. Raises NotOnNetworkError when this node is not on it."""
    if not network:
        return usual
    found = _ipv4(INTERFACE) or _ipv6(INTERFACE)
    if not found:
        raise NotOnNetworkError(
            f"migrations.network is {network}, but virt-handler has no address on {INTERFACE}:"
            " set kubevirt.configuration.migrations.network in the chart's values, which puts its Pod on that network"
        )
    return found


def _ipv4(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("16s24x", interface.encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def _ipv6(interface: str, table: Path = Path("/proc/self/net/if_inet6")) -> str:
    """A global one: a link-local address means nothing without its interface."""
    for line in table.read_text().splitlines() if table.exists() else ():
        digits, _, _, scope, _, name = line.split()
        if name == interface and scope == _GLOBAL_SCOPE:
            return str(ipaddress.IPv6Address(bytes.fromhex(digits)))
    return ""
