"""Steps on links and addresses: bridges, TAPs and what is set on them."""

from __future__ import annotations

import errno

from virt_netsetup.model import Address, Link, NetsetupError, Value
from virt_netsetup.steps import Nothing, Step, World, name_of, need_link


class AddLink(Value, frozen=True):
    """A link of our own. Where the kernel lacks a kind, `fallback` is taken."""

    name: str
    kind: str
    mac: str
    mtu: int
    fallback: str = ""

    def satisfied(self, world: World) -> bool:
        link = world.kernel.link(self.name)
        if link is not None and link.kind not in (self.kind, self.fallback):
            raise NetsetupError(
                name_of(self), f"{self.name} exists and is a {link.kind or 'NIC'}, not a {self.kind}", True
            )
        return link is not None

    def apply(self, world: World) -> None:
        try:
            world.kernel.add_link(self.name, self.kind, self.mac, self.mtu)
        except OSError as error:
            if not self.fallback or error.errno != errno.EOPNOTSUPP:
                raise
            world.kernel.add_link(self.name, self.fallback, self.mac, self.mtu)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return RemoveLink(self.name, (self.kind, self.fallback))


class AddTap(Value, frozen=True):
    """A TAP that the launcher may open; it stays when we end."""

    name: str
    uid: int
    queues: int

    def satisfied(self, world: World) -> bool:
        link = world.kernel.link(self.name)
        if link is not None and link.kind != "tun":
            raise NetsetupError(name_of(self), f"{self.name} exists and is a {link.kind or 'NIC'}, not a TAP", True)
        return link is not None

    def apply(self, world: World) -> None:
        world.kernel.add_tap(self.name, self.uid, self.queues)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return RemoveLink(self.name, ("tun",))


class RemoveLink(Value, frozen=True):
    """Only removes a link of the kinds given: the Pod's own NIC may come to bear the name."""

    name: str
    kinds: tuple[str, ...]

    def _link(self, world: World) -> Link | None:
        link = world.kernel.link(self.name)
        return link if link is not None and link.kind in self.kinds else None

    def satisfied(self, world: World) -> bool:
        return self._link(world) is None

    def apply(self, world: World) -> None:
        link = self._link(world)
        if link is not None:
            world.kernel.delete_link(link.index)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return Nothing()


class SetMtu(Value, frozen=True):
    name: str
    mtu: int

    def satisfied(self, world: World) -> bool:
        return need_link(world.kernel, self.name).mtu == self.mtu

    def apply(self, world: World) -> None:
        world.kernel.set_link(need_link(world.kernel, self.name).index, mtu=self.mtu)

    def inverse(self, world: World) -> Step:
        return SetMtu(self.name, need_link(world.kernel, self.name).mtu)


class SetUp(Value, frozen=True):
    name: str
    up: bool = True

    def satisfied(self, world: World) -> bool:
        return need_link(world.kernel, self.name).up == self.up

    def apply(self, world: World) -> None:
        world.kernel.set_link(need_link(world.kernel, self.name).index, up=self.up)

    def inverse(self, world: World) -> Step:
        return SetUp(self.name, need_link(world.kernel, self.name).up)


class SetMaster(Value, frozen=True):
    """Makes the link a port of the bridge; an empty master frees it."""

    name: str
    master: str

    def _master(self, world: World) -> int:
        return need_link(world.kernel, self.master).index if self.master else 0

    def satisfied(self, world: World) -> bool:
        return need_link(world.kernel, self.name).master == self._master(world)

    def apply(self, world: World) -> None:
        world.kernel.set_link(need_link(world.kernel, self.name).index, master=self._master(world))

    def inverse(self, world: World) -> Step:
        index = need_link(world.kernel, self.name).master
        links = world.kernel.links() if index else []
        return SetMaster(self.name, next((link.name for link in links if link.index == index), ""))


class AddAddress(Value, frozen=True):
    name: str
    address: Address

    def satisfied(self, world: World) -> bool:
        return self.address in world.kernel.addresses(need_link(world.kernel, self.name).index)

    def apply(self, world: World) -> None:
        world.kernel.add_address(need_link(world.kernel, self.name).index, self.address)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return DropAddress(self.name, self.address)


class DropAddress(Value, frozen=True):
    name: str
    address: Address

    def satisfied(self, world: World) -> bool:
        link = world.kernel.link(self.name)
        return link is None or self.address not in world.kernel.addresses(link.index)

    def apply(self, world: World) -> None:
        world.kernel.delete_address(need_link(world.kernel, self.name).index, self.address)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return AddAddress(self.name, self.address)
