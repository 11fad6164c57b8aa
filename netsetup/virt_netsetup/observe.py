"""Reads the Pod's NIC as the CNI plugin left it."""

from __future__ import annotations

from virt_netsetup.kernel import Kernel
from virt_netsetup.model import Link, NetsetupError, PodNic, tap_name

#: What QEMU can open. A macvtap is a device node as well, which whoever made it brings into the container.
TAP_KINDS = ("tun", "macvtap")


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
        given_tap=_given_tap(kernel, link),
    )


def _given_tap(kernel: Kernel, link: Link) -> str:
    if link.kind in TAP_KINDS:
        return link.name
    name = tap_name(link.name)
    beside = kernel.link(name)
    return name if beside is not None and beside.kind in TAP_KINDS else ""


def _accepts_ra(kernel: Kernel, name: str) -> bool:
    try:
        return kernel.read_sysctl(f"net/ipv6/conf/{name}/accept_ra") == "1"
    except FileNotFoundError:
        # A kernel without IPv6.
        return False
