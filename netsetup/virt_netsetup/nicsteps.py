"""The two steps that take the Pod's NIC for the bridge binding and give it back.

The NIC is found by its index, because its name goes to the dummy that stands in for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from virt_netsetup.model import Link, NetsetupError, PodNic, Route, Value
from virt_netsetup.steps import Step, World, need_link

if TYPE_CHECKING:
    from virt_netsetup.kernel import Kernel


def _find(kernel: Kernel, index: int) -> Link | None:
    return next((link for link in kernel.links() if link.index == index), None)


def _nic(kernel: Kernel, index: int) -> Link:
    if (link := _find(kernel, index)) is not None:
        return link
    raise NetsetupError("TakeNic", f"the Pod's interface with index {index} is gone", critical=True)


def _rename(kernel: Kernel, link: Link, name: str, mac: str) -> None:
    """The kernel wants an interface down for that, which costs it its routes and its IPv6 addresses."""
    if (link.name, link.mac) == (name, mac):
        return
    kernel.set_link(link.index, up=False)
    if link.name != name:
        kernel.set_link(link.index, name=name)
    if link.mac != mac:
        kernel.set_link(link.index, mac=mac)


class TakeNic(Value, frozen=True):
    """The NIC under another name and MAC, without addresses, as a port of the bridge that does not learn."""

    nic: PodNic
    name: str
    mac: str
    bridge: str

    def satisfied(self, world: World) -> bool:
        link = _nic(world.kernel, self.nic.index)
        bridge = need_link(world.kernel, self.bridge)
        shape = (link.name, link.mac, link.master, link.learning, link.up)
        addresses = [address for address in world.kernel.addresses(link.index) if address.is_global]
        return shape == (self.name, self.mac, bridge.index, False, True) and not addresses

    def apply(self, world: World) -> None:
        kernel, index = world.kernel, self.nic.index
        _rename(kernel, _nic(kernel, index), self.name, self.mac)
        for address in kernel.addresses(index):
            kernel.delete_address(index, address)
        kernel.set_link(index, master=need_link(kernel, self.bridge).index)
        # With learning off the bridge floods: the guest's MAC is never looked for behind the wrong port.
        kernel.set_learning(index, False)
        kernel.set_link(index, up=True)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return RestoreNic(self.nic)


class RestoreNic(Value, frozen=True):
    """The NIC as the CNI plugin left it. One that the Pod has lost meanwhile is nobody's to restore."""

    nic: PodNic

    def _missing_routes(self, world: World) -> list[Route]:
        present = {(route.destination, route.gateway) for route in world.kernel.routes(self.nic.index)}
        missing = [route for route in self.nic.own_routes if (route.destination, route.gateway) not in present]
        # On-link routes first: a gateway must be reachable before a route can go through it.
        return sorted(missing, key=lambda route: bool(route.gateway))

    def satisfied(self, world: World) -> bool:
        link = _find(world.kernel, self.nic.index)
        if link is None:
            return True
        if (link.name, link.mac, link.master, link.up) != (self.nic.name, self.nic.mac, 0, True):
            return False
        present = world.kernel.addresses(link.index)
        return all(address in present for address in self.nic.addresses) and not self._missing_routes(world)

    def apply(self, world: World) -> None:
        kernel, index = world.kernel, self.nic.index
        if _nic(kernel, index).master:
            kernel.set_link(index, master=0)
        _rename(kernel, _nic(kernel, index), self.nic.name, self.nic.mac)
        kernel.set_link(index, up=True)
        for address in self.nic.addresses:
            kernel.add_address(index, address)
        for route in self._missing_routes(world):
            kernel.add_route(index, route)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return self
