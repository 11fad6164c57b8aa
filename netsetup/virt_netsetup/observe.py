"""Reads the Pod's NIC as the CNI plugin left it."""

from __future__ import annotations

from virt_netsetup.kernel import Kernel
from virt_netsetup.model import NetsetupError, PodNic


def pod_nic(kernel: Kernel, name: str) -> PodNic:
    link = kernel.link(name)
    if link is None:
        seen = ", ".join(sorted(link.name for link in kernel.links())) or "none"
        raise NetsetupError("podInterface", f"the Pod has no interface {name} (it has: {seen})")
    return PodNic(
        index=link.index,
        name=link.name,
        mac=link.mac,
        mtu=link.mtu,
        # Link-local addresses come by themselves with the link.
        addresses=tuple(address for address in kernel.addresses(link.index) if address.is_global),
        routes=tuple(kernel.routes(link.index)),
        accepts_ra=_accepts_ra(kernel, name),
        kind=link.kind,
    )


def _accepts_ra(kernel: Kernel, name: str) -> bool:
    try:
        return kernel.read_sysctl(f"net/ipv6/conf/{name}/accept_ra") == "1"
    except FileNotFoundError:
        # A kernel without IPv6.
        return False
