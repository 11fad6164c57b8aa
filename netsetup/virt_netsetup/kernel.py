"""The only door to the kernel's network configuration: links, addresses, routes, TAPs and sysctls of this namespace.

pyroute2 speaks to it. What it does not do for us are the ioctls of a TAP.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from virt_netsetup.model import Address, Link, Route
from virt_netsetup.pyroute import IPRoute, NetlinkError

IFA_F_NODAD, IFF_UP = 2, 1
RT_TABLE_MAIN, RT_SCOPE_UNIVERSE, RT_SCOPE_LINK, RTN_UNICAST = 254, 0, 253, 1
RTNH_F_ONLINK = 4
TUNSETIFF, TUNSETPERSIST, TUNSETOWNER, TUNSETGROUP = 0x400454CA, 0x400454CB, 0x400454CC, 0x400454CE
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR, IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x4000, 0x0100
#: A bridge that forwards at once and does not guess who listens to a multicast group.
KINDS = {"bridge": {"br_forward_delay": 0, "br_stp_state": 0, "br_mcast_snooping": 0}}

#: As pyroute2 hands it out.
Message = Any


class Kernel(Protocol):
    """What the rest asks of the kernel; the unit tests have a fake of it, and one contract test runs on both."""

    def link(self, name: str) -> Link | None: ...
    def links(self) -> list[Link]: ...
    def addresses(self, index: int) -> list[Address]: ...
    def routes(self, index: int) -> list[Route]: ...
    def add_link(self, name: str, kind: str, mac: str, mtu: int) -> None: ...
    def add_tap(self, name: str, uid: int, queues: int) -> None: ...
    def delete_link(self, index: int) -> None: ...
    def set_link(
        self,
        index: int,
        *,
        name: str = "",
        mac: str = "",
        mtu: int = 0,
        master: int | None = None,
        up: bool | None = None,
    ) -> None: ...
    def set_learning(self, index: int, learning: bool) -> None: ...
    def add_address(self, index: int, address: Address) -> None: ...
    def delete_address(self, index: int, address: Address) -> None: ...
    def add_route(self, index: int, route: Route) -> None: ...
    def read_sysctl(self, name: str) -> str: ...
    def write_sysctl(self, name: str, value: str) -> None: ...


class LinuxKernel:
    """Of the namespace in which the process is when this is made."""

    def __init__(self) -> None:
        # With the kernel's own words for what it refuses.
        self._netlink = IPRoute(ext_ack=True)
        # What was seen since our last change of a link: each step asks for the same again.
        self._seen: dict[str, Link | None] = {}
        self._addresses: list[tuple[int, Address]] | None = None

    def close(self) -> None:
        self._netlink.close()

    def link(self, name: str) -> Link | None:
        if name not in self._seen:
            self._seen[name] = self._look(name)
        return self._seen[name]

    def _look(self, name: str) -> Link | None:
        try:
            with _refusals():
                return next(map(link_of, self._netlink.link("get", ifname=name)), None)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return None
            raise

    def _forget(self) -> None:
        self._seen.clear()
        self._addresses = None

    @contextmanager
    def _change(self) -> Iterator[Any]:
        """Of a link: others can change with it, as a bridge does with its ports, and its addresses can go."""
        self._forget()
        with _refusals():
            yield self._netlink

    def links(self) -> list[Link]:
        with _refusals():
            return [link_of(message) for message in self._netlink.link("dump")]

    def addresses(self, index: int) -> list[Address]:
        if self._addresses is None:
            with _refusals():
                found = list(self._netlink.addr("dump"))
            self._addresses = [(message["index"], address_of(message)) for message in found]
        return [address for owner, address in self._addresses if owner == index]

    def routes(self, index: int) -> list[Route]:
        with _refusals():
            parsed = [route_of(message, index) for message in self._netlink.route("dump", family=socket.AF_UNSPEC)]
        return [route for route in parsed if route is not None]

    def add_link(self, name: str, kind: str, mac: str, mtu: int) -> None:
        with self._change() as netlink:
            netlink.link("add", ifname=name, kind=kind, address=mac, mtu=mtu, **KINDS.get(kind, {}))

    def add_tap(self, name: str, uid: int, queues: int) -> None:
        flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | (IFF_MULTI_QUEUE if queues > 1 else 0)
        self._forget()
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
            fcntl.ioctl(device, TUNSETOWNER, uid)
            fcntl.ioctl(device, TUNSETGROUP, uid)
            fcntl.ioctl(device, TUNSETPERSIST, 1)
        finally:
            os.close(device)

    def delete_link(self, index: int) -> None:
        with self._change() as netlink:
            netlink.link("del", index=index)

    def set_link(
        self,
        index: int,
        *,
        name: str = "",
        mac: str = "",
        mtu: int = 0,
        master: int | None = None,
        up: bool | None = None,
    ) -> None:
        wanted = {"ifname": name or None, "address": mac or None, "mtu": mtu or None, "master": master}
        if up is not None:
            wanted["state"] = "up" if up else "down"
        with self._change() as netlink:
            netlink.link("set", index=index, **{key: value for key, value in wanted.items() if value is not None})

    def set_learning(self, index: int, learning: bool) -> None:
        with self._change() as netlink:
            netlink.brport("set", index=index, learning=int(learning))

    def add_address(self, index: int, address: Address) -> None:
        # No duplicate address detection: it waits for a carrier, which comes only with the guest.
        flags = {"flags": IFA_F_NODAD} if address.version == 6 else {}
        with _refusals():
            self._netlink.addr("replace", index=index, address=address.ip, prefixlen=address.prefix, **flags)
        if self._addresses is not None:
            self._addresses.append((index, address))

    def delete_address(self, index: int, address: Address) -> None:
        self._addresses = None
        with _refusals():
            self._netlink.addr("del", index=index, address=address.ip, prefixlen=address.prefix)

    def add_route(self, index: int, route: Route) -> None:
        with _refusals():
            self._netlink.route("replace", oif=index, **route_words(route))

    def read_sysctl(self, name: str) -> str:
        return _sysctl_path(name).read_text().strip()

    def write_sysctl(self, name: str, value: str) -> None:
        _sysctl_path(name).write_text(value)


def _sysctl_path(name: str) -> Path:
    """/proc/sys/net shows the namespace of whoever reads it, so this needs no mount of its own."""
    return Path("/proc/sys", name)


@contextmanager
def _refusals() -> Iterator[None]:
    """What the kernel refuses is an OSError, with the kernel's own sentence if it had one."""
    try:
        yield
    except NetlinkError as error:
        name, reason = os.strerror(error.code), str(error.args[1])
        raise OSError(error.code, name if reason == name else f"{name} ({reason})") from error


def link_of(message: Message) -> Link:
    learning = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_LEARNING")
    return Link(
        index=message["index"],
        name=message.get_attr("IFLA_IFNAME"),
        kind=message.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") or "",
        mac=message.get_attr("IFLA_ADDRESS") or "",
        mtu=message.get_attr("IFLA_MTU") or 0,
        up=bool(message["flags"] & IFF_UP),
        master=message.get_attr("IFLA_MASTER") or 0,
        learning=None if learning is None else bool(learning),
    )


def address_of(message: Message) -> Address:
    ip = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
    return Address(ip=str(ipaddress.ip_address(ip)), prefix=message["prefixlen"])


def route_of(message: Message, index: int) -> Route | None:
    """Nothing for a route through another interface, of another table, or that leads nowhere."""
    through = message.get_attr("RTA_OIF")
    if message["table"] != RT_TABLE_MAIN or message["type"] != RTN_UNICAST or through != index:
        return None
    destination = message.get_attr("RTA_DST")
    return Route(
        destination=f"{destination}/{message['dst_len']}" if destination else "",
        gateway=message.get_attr("RTA_GATEWAY") or "",
        version=4 if message["family"] == socket.AF_INET else 6,
        protocol=message["proto"],
        on_link=bool(message["flags"] & RTNH_F_ONLINK),
    )


def route_words(route: Route) -> dict[str, Any]:
    """As pyroute2 wants to hear it."""
    words: dict[str, Any] = {
        "family": socket.AF_INET if route.version == 4 else socket.AF_INET6,
        "table": RT_TABLE_MAIN,
        "proto": route.protocol,
        "scope": RT_SCOPE_UNIVERSE if route.gateway or route.version == 6 else RT_SCOPE_LINK,
        "type": RTN_UNICAST,
        "flags": RTNH_F_ONLINK if route.on_link else 0,
    }
    if route.destination:
        words["dst"] = str(ipaddress.ip_network(route.destination, strict=False))
    if route.gateway:
        words["gateway"] = route.gateway
    return words
