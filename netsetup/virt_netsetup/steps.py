"""The moves that a wiring is made of.

Each step is a value that describes a state, not an act: it can tell whether the state is already there, bring it about,
and name the step that leads back to what is there now. So a second run changes nothing, a run that was killed half-way
is simply run again, and a failed one is undone step by step.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar, Protocol

from virt_netsetup.dhcpserver import DhcpServer
from virt_netsetup.model import Address, Link, Value
from virt_netsetup.tables import Table

if TYPE_CHECKING:
    from virt_netsetup.dhcp import DhcpServers
    from virt_netsetup.firewall import Firewall
    from virt_netsetup.kernel import Kernel


class World(Value, frozen=True):
    """What steps act upon."""

    kernel: Kernel
    firewall: Firewall
    dhcp: DhcpServers
    namespace: int = 0


class Step(Protocol):
    __struct_fields__: ClassVar[tuple[str, ...]]

    def satisfied(self, world: World) -> bool: ...
    def apply(self, world: World) -> None: ...
    def inverse(self, world: World) -> Step: ...


def need_link(kernel: Kernel, name: str) -> Link:
    link = kernel.link(name)
    if link is None:
        raise OSError(errno.ENODEV, f"there is no interface {name}")
    return link


def name_of(step: Step) -> str:
    return type(step).__name__


def describe(step: Step) -> str:
    """For messages: the step's name and its plain fields."""
    fields = (getattr(step, name) for name in type(step).__struct_fields__)
    return " ".join(
        [name_of(step), *(str(value) for value in fields if isinstance(value, str | int | Address) and value)]
    )


class Nothing(Value, frozen=True):
    def satisfied(self, world: World) -> bool:  # noqa: ARG002
        return True

    def apply(self, world: World) -> None:
        """There is nothing to do."""

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return self


class Sysctl(Value, frozen=True):
    """`optional`: a kernel that lacks it has nothing to switch off."""

    name: str
    value: str
    optional: bool = False

    def satisfied(self, world: World) -> bool:
        try:
            return world.kernel.read_sysctl(self.name) == self.value
        except FileNotFoundError:
            if self.optional:
                return True
            raise

    def apply(self, world: World) -> None:
        world.kernel.write_sysctl(self.name, self.value)

    def inverse(self, world: World) -> Step:
        return Sysctl(self.name, world.kernel.read_sysctl(self.name))


class InstallTables(Value, frozen=True):
    tables: tuple[Table, ...]

    def satisfied(self, world: World) -> bool:
        return all(world.firewall.has(table) for table in self.tables)

    def apply(self, world: World) -> None:
        world.firewall.install(self.tables)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return RemoveTables(tuple((table.family, table.name) for table in self.tables))


class RemoveTables(Value, frozen=True):
    """By family and name."""

    tables: tuple[tuple[str, str], ...]

    def satisfied(self, world: World) -> bool:
        return not any(world.firewall.exists(*table) for table in self.tables)

    def apply(self, world: World) -> None:
        for table in self.tables:
            if world.firewall.exists(*table):
                world.firewall.remove(*table)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return Nothing()


class StartDhcp(Value, frozen=True):
    server: DhcpServer

    def satisfied(self, world: World) -> bool:
        return world.dhcp.runs(self.server)

    def apply(self, world: World) -> None:
        world.dhcp.start(self.server)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return StopDhcp(self.server.name)


class StopDhcp(Value, frozen=True):
    name: str

    def satisfied(self, world: World) -> bool:
        return not world.dhcp.known(self.name)

    def apply(self, world: World) -> None:
        world.dhcp.stop(self.name)

    def inverse(self, world: World) -> Step:  # noqa: ARG002
        return Nothing()
