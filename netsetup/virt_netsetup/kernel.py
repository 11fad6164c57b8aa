"""The only door to the kernel's network configuration: links, addresses, routes, TAPs and sysctls of this namespace."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from pathlib import Path
from typing import Protocol

from virt_netsetup import netlink as nl
from virt_netsetup.model import Address, Link, Route

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_GETROUTE = 24, 26
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_MASTER, IFLA_LINKINFO = 1, 3, 4, 10, 18
IFLA_PROTINFO = 12
IFLA_INFO_KIND, IFLA_INFO_DATA, IFLA_INFO_SLAVE_DATA = 1, 2, 5
IFLA_BR_FORWARD_DELAY, IFLA_BR_STP_STATE, IFLA_BR_MCAST_SNOOPING = 1, 5, 23
IFLA_BRPORT_LEARNING = 8
IFA_ADDRESS, IFA_LOCAL, IFA_FLAGS = 1, 2, 8
IFA_F_NODAD, IFF_UP = 2, 1
RTA_DST, RTA_OIF, RTA_GATEWAY = 1, 4, 5
RT_TABLE_MAIN, RT_SCOPE_UNIVERSE, RT_SCOPE_LINK, RTN_UNICAST = 254, 0, 253, 1
RTNH_F_ONLINK = 4
TUNSETIFF, TUNSETPERSIST, TUNSETOWNER, TUNSETGROUP = 0x400454CA, 0x400454CB, 0x400454CC, 0x400454CE
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR, IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x4000, 0x0100

_LINK = struct.Struct("=BBHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")


class Kernel(Protocol):
    """What the rest asks of the kernel; the unit tests have a fake of it, and one contract test runs on both."""

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
        self._netlink = nl.Netlink()

    def close(self) -> None:
        self._netlink.close()

    def links(self) -> list[Link]:
        return [_parse_link(body) for body in self._netlink.dump(RTM_GETLINK, _LINK.pack(0, 0, 0, 0, 0, 0))]

    def addresses(self, index: int) -> list[Address]:
        bodies = self._netlink.dump(RTM_GETADDR, _ADDRESS.pack(0, 0, 0, 0, 0))
        return [_parse_address(body) for body in bodies if _ADDRESS.unpack_from(body)[4] == index]

    def routes(self, index: int) -> list[Route]:
        bodies = self._netlink.dump(RTM_GETROUTE, _ROUTE.pack(0, 0, 0, 0, 0, 0, 0, 0, 0))
        parsed = (_parse_route(body, index) for body in bodies)
        return [route for route in parsed if route is not None]

    def add_link(self, name: str, kind: str, mac: str, mtu: int) -> None:
        body = _LINK.pack(0, 0, 0, 0, 0, 0) + nl.text(IFLA_IFNAME, name) + nl.number(IFLA_MTU, mtu)
        body += nl.attribute(IFLA_ADDRESS, _mac_bytes(mac))
        body += nl.nested(IFLA_LINKINFO, nl.text(IFLA_INFO_KIND, kind), *_link_data(kind))
        self._netlink.change(RTM_NEWLINK, body, nl.NLM_F_CREATE | nl.NLM_F_EXCL)

    def add_tap(self, name: str, uid: int, queues: int) -> None:
        flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | (IFF_MULTI_QUEUE if queues > 1 else 0)
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
            fcntl.ioctl(device, TUNSETOWNER, uid)
            fcntl.ioctl(device, TUNSETGROUP, uid)
            fcntl.ioctl(device, TUNSETPERSIST, 1)
        finally:
            os.close(device)

    def delete_link(self, index: int) -> None:
        self._netlink.change(RTM_DELLINK, _LINK.pack(0, 0, 0, index, 0, 0))

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
        change = 0 if up is None else IFF_UP
        body = _LINK.pack(0, 0, 0, index, IFF_UP if up else 0, change)
        body += nl.text(IFLA_IFNAME, name) if name else b""
        body += nl.attribute(IFLA_ADDRESS, _mac_bytes(mac)) if mac else b""
        body += nl.number(IFLA_MTU, mtu) if mtu else b""
        body += nl.number(IFLA_MASTER, master) if master is not None else b""
        self._netlink.change(RTM_NEWLINK, body)

    def set_learning(self, index: int, learning: bool) -> None:
        body = _LINK.pack(socket.AF_BRIDGE, 0, 0, index, 0, 0)
        body += nl.nested(IFLA_PROTINFO, nl.byte(IFLA_BRPORT_LEARNING, int(learning)))
        self._netlink.change(RTM_SETLINK, body)

    def add_address(self, index: int, address: Address) -> None:
        self._netlink.change(RTM_NEWADDR, _address_body(index, address), nl.NLM_F_CREATE | nl.NLM_F_REPLACE)

    def delete_address(self, index: int, address: Address) -> None:
        self._netlink.change(RTM_DELADDR, _address_body(index, address))

    def add_route(self, index: int, route: Route) -> None:
        family = socket.AF_INET if route.version == 4 else socket.AF_INET6
        destination = ipaddress.ip_network(route.destination, strict=False) if route.destination else None
        scope = RT_SCOPE_UNIVERSE if route.gateway or route.version == 6 else RT_SCOPE_LINK
        flags = RTNH_F_ONLINK if route.on_link else 0
        length = destination.prefixlen if destination else 0
        body = _ROUTE.pack(family, length, 0, 0, RT_TABLE_MAIN, route.protocol, scope, RTN_UNICAST, flags)
        body += nl.attribute(RTA_DST, destination.network_address.packed) if destination else b""
        body += nl.attribute(RTA_GATEWAY, ipaddress.ip_address(route.gateway).packed) if route.gateway else b""
        body += nl.number(RTA_OIF, index)
        self._netlink.change(RTM_NEWROUTE, body, nl.NLM_F_CREATE | nl.NLM_F_REPLACE)

    def read_sysctl(self, name: str) -> str:
        return _sysctl_path(name).read_text().strip()

    def write_sysctl(self, name: str, value: str) -> None:
        _sysctl_path(name).write_text(value)


def _sysctl_path(name: str) -> Path:
    """/proc/sys/net shows the namespace of whoever reads it, so this needs no mount of its own."""
    return Path("/proc/sys", name)


def _mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _link_data(kind: str) -> tuple[bytes, ...]:
    """A bridge that forwards at once and does not guess who listens to a multicast group."""
    if kind != "bridge":
        return ()
    settings = (
        nl.number(IFLA_BR_FORWARD_DELAY, 0),
        nl.number(IFLA_BR_STP_STATE, 0),
        nl.byte(IFLA_BR_MCAST_SNOOPING, 0),
    )
    return (nl.nested(IFLA_INFO_DATA, *settings),)


def _parse_link(body: bytes) -> Link:
    _, _, _, index, flags, _ = _LINK.unpack_from(body)
    found = nl.attributes(body[_LINK.size :])
    info = nl.attributes(found.get(IFLA_LINKINFO, b""))
    port = nl.attributes(info.get(IFLA_INFO_SLAVE_DATA, b""))
    return Link(
        index=index,
        name=found[IFLA_IFNAME].rstrip(b"\0").decode(),
        kind=info.get(IFLA_INFO_KIND, b"").rstrip(b"\0").decode(),
        mac=found.get(IFLA_ADDRESS, b"").hex(":"),
        mtu=int.from_bytes(found.get(IFLA_MTU, b""), "little"),
        up=bool(flags & IFF_UP),
        master=int.from_bytes(found.get(IFLA_MASTER, b""), "little"),
        learning=bool(port[IFLA_BRPORT_LEARNING][0]) if IFLA_BRPORT_LEARNING in port else None,
    )


def _parse_address(body: bytes) -> Address:
    _, prefix, _, _, _ = _ADDRESS.unpack_from(body)
    found = nl.attributes(body[_ADDRESS.size :])
    return Address(ip=str(ipaddress.ip_address(found.get(IFA_LOCAL) or found[IFA_ADDRESS])), prefix=prefix)


def _address_body(index: int, address: Address) -> bytes:
    ip = ipaddress.ip_address(address.ip)
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    body = _ADDRESS.pack(family, address.prefix, 0, 0, index)
    # No duplicate address detection: it waits for a carrier, which comes only with the guest.
    flags = nl.number(IFA_FLAGS, IFA_F_NODAD) if ip.version == 6 else b""
    return body + nl.attribute(IFA_LOCAL, ip.packed) + nl.attribute(IFA_ADDRESS, ip.packed) + flags


def _parse_route(body: bytes, index: int) -> Route | None:
    family, length, _, _, table, protocol, _, kind, flags = _ROUTE.unpack_from(body)
    found = nl.attributes(body[_ROUTE.size :])
    through = int.from_bytes(found.get(RTA_OIF, b""), "little")
    if table != RT_TABLE_MAIN or kind != RTN_UNICAST or through != index:
        return None
    version = 4 if family == socket.AF_INET else 6
    destination = f"{ipaddress.ip_address(found[RTA_DST])}/{length}" if RTA_DST in found else ""
    gateway = str(ipaddress.ip_address(found[RTA_GATEWAY])) if RTA_GATEWAY in found else ""
    return Route(
        destination=destination,
        gateway=gateway,
        version=version,
        protocol=protocol,
        on_link=bool(flags & RTNH_F_ONLINK),
    )
