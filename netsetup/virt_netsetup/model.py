"""What we see in the Pod's namespace and what we keep about it between two runs."""

from __future__ import annotations

import ipaddress

import msgspec

RTPROT_KERNEL, RTPROT_STATIC = 2, 4


class Value(msgspec.Struct, frozen=True):
    """A plain class of fields. Making one takes a tenth of what a dataclass takes, and we start once for each guest."""


class NetsetupError(Exception):
    """A failure in the words of the caller: the step, a sentence, and whether another try is pointless."""

    def __init__(self, step: str, message: str, critical: bool = False, undone: bool = True) -> None:
        super().__init__(message)
        self.step = step
        self.message = message
        self.critical = critical
        self.undone = undone


def tap_name(pod_interface: str) -> str:
    """Secondary interfaces are called pod<hash>; the links that we make for them carry only the hash."""
    return f"tap{pod_interface.removeprefix('pod')}" if pod_interface.startswith("pod") else "tap0"


class Link(Value, frozen=True):
    """A network interface as the kernel shows it."""

    index: int
    name: str
    kind: str
    mac: str
    mtu: int
    up: bool
    master: int = 0
    learning: bool | None = None


class Address(Value, frozen=True):
    """An address of an interface, such as 10.244.101.5/24."""

    ip: str
    prefix: int

    @property
    def version(self) -> int:
        return ipaddress.ip_address(self.ip).version

    @property
    def is_global(self) -> bool:
        """Global unicast in the sense of Pod networks: private ranges count, link-local and loopback do not."""
        ip = ipaddress.ip_address(self.ip)
        return not (ip.is_link_local or ip.is_loopback or ip.is_multicast or ip.is_unspecified)

    def __str__(self) -> str:
        return f"{self.ip}/{self.prefix}"


class Route(Value, frozen=True):
    """A route through an interface. Without a gateway it is on-link; destination "" is the default route."""

    destination: str
    gateway: str = ""
    version: int = 4
    protocol: int = RTPROT_STATIC
    on_link: bool = False

    @property
    def from_kernel(self) -> bool:
        return self.protocol == RTPROT_KERNEL


class PodNic(Value, frozen=True):
    """The Pod's interface as the CNI plugin left it, before we touched it."""

    index: int
    name: str
    mac: str
    mtu: int
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    accepts_ra: bool = False
    #: The kind of link, as the kernel calls it.
    kind: str = ""
    #: A TAP for the guest that somebody made before us: the interface itself, or one that goes by its name.
    given_tap: str = ""

    @property
    def own_routes(self) -> tuple[Route, ...]:
        """Those that the kernel does not make by itself when the address comes back."""
        return tuple(route for route in self.routes if not route.from_kernel)

    def global_addresses(self, version: int) -> list[Address]:
        return [address for address in self.addresses if address.version == version and address.is_global]

    @property
    def short_name(self) -> str:
        """Secondary interfaces are called pod<hash>; the links that we make for them carry only the hash."""
        return self.name.removeprefix("pod") or self.name

    @property
    def bridge(self) -> str:
        return f"k6t-{self.short_name}"

    @property
    def tap(self) -> str:
        return tap_name(self.name)


class Record(Value, frozen=True):
    """Kept in the state directory, written before the first change: without it a half-done run could not go on."""

    nic: PodNic
    binding: str
    # Which network namespace this is about: a Pod whose sandbox was made anew has the same UID but another namespace.
    namespace: int
    sysctls: dict[str, str] = {}
    #: Its number among the NICs of the Pod; older records have none.
    position: int = -1
