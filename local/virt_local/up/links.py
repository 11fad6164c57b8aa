"""Links, addresses and routes as an instance needs them: the only `import pyroute2`.

A layout is what should stand in one network namespace; `establish` makes what is missing and leaves alone what is
right, because Pods are connected through it. A namespace is entered by a thread that ends afterwards: pyroute2's own
helpers fork, and the supervisor has threads by then. pyroute2 is imported at the first use (0.2 s), so that `status`
stays quick.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from virt_local.node import kernel
from virt_local.up.errors import NetworkError

NETNS_DIR = Path("/run/netns")
_IFA_F_NODAD = 0x02
_MAIN_TABLE = 254
_MS_SHARED = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bridge:
    """With `mac` its address is fixed; otherwise the kernel follows the lowest of its ports. Rules know the `group`."""

    name: str
    mac: str = ""
    group: int = 0


@dataclass(frozen=True, slots=True)
class Veth:
    """A pair: `name` here, a port of `bridge` if there is one; `peer` in the namespace."""

    name: str
    peer: str
    netns: str
    bridge: str = ""


@dataclass(frozen=True, slots=True)
class Address:
    link: str
    cidr: str


@dataclass(frozen=True, slots=True)
class Route:
    destination: str
    via: str
    link: str


@dataclass(frozen=True, slots=True)
class Layout:
    bridges: tuple[Bridge, ...] = ()
    veths: tuple[Veth, ...] = ()
    addresses: tuple[Address, ...] = ()
    up: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()


def establish(layout: Layout) -> None:
    """In the namespace of the calling thread. Raises NetworkError, which names the link."""
    with _netlink() as netlink:
        for bridge in layout.bridges:
            _bridge(netlink, bridge)
        for veth in layout.veths:
            _veth(netlink, veth)
        for address in layout.addresses:
            _address(netlink, address)
        for name in layout.up:
            with _doing(f"the link {name} cannot be brought up"):
                netlink.link("set", index=_index(name), state="up")
        for route in layout.routes:
            _route(netlink, route)


def remove(name: str) -> bool:
    """False: there was none, or the kernel took it away meanwhile, as with a veth whose peer's namespace went."""
    if not exists(name):
        return False
    try:
        with _netlink() as netlink, _doing(f"the link {name} cannot be removed"):
            netlink.link("del", index=_index(name))
    except NetworkError:
        if exists(name):
            raise
        return False
    return True


def names() -> frozenset[str]:
    return frozenset(name for _, name in socket.if_nameindex())


def exists(name: str) -> bool:
    return name in names()


def routes() -> list[tuple[str, str]]:
    """(interface, destination) of every IPv4 route of the main table, without the default one."""
    with _netlink() as netlink, _doing("the routes cannot be read"):
        found = list(netlink.get_routes(family=socket.AF_INET, table=_MAIN_TABLE))
    known = dict(socket.if_nameindex())
    return [
        (known.get(each.get("oif"), ""), f"{each.get('dst')}/{each['dst_len']}") for each in found if each["dst_len"]
    ]


def in_namespace(name: str, body: Callable[[], T]) -> T:
    return kernel.in_netns(NETNS_DIR / name, body)


def namespaces() -> frozenset[str]:
    return frozenset(path.name for path in NETNS_DIR.iterdir()) if NETNS_DIR.is_dir() else frozenset()


def ensure_namespace(name: str) -> None:
    """As `ip netns add` keeps it. A name that is no mounted namespace is a left-over of a reboot and is made anew."""
    path = NETNS_DIR / name
    with _doing(f"the network namespace {name} cannot be made"):
        if str(path) in kernel.mount_points():
            return
        path.unlink(missing_ok=True)
        _share_directory()
        kernel.create_netns(path, lambda: None)


def remove_namespace(name: str) -> None:
    with _doing(f"the network namespace {name} cannot be removed"):
        kernel.unmount(NETNS_DIR / name)
        (NETNS_DIR / name).unlink(missing_ok=True)


def _share_directory() -> None:
    """So that a namespace which is removed here is removed in every mount namespace that has a copy."""
    NETNS_DIR.mkdir(mode=0o755, exist_ok=True)
    if str(NETNS_DIR) not in kernel.mount_points():
        kernel.mount(str(NETNS_DIR), str(NETNS_DIR), flags=kernel.MS_BIND | kernel.MS_REC)
    kernel.mount("", str(NETNS_DIR), flags=_MS_SHARED | kernel.MS_REC)


def _bridge(netlink: Any, bridge: Bridge) -> None:
    with _doing(f"the bridge {bridge.name} cannot be made"):
        if not exists(bridge.name):
            more = {"address": bridge.mac} if bridge.mac else {}
            netlink.link("add", ifname=bridge.name, kind="bridge", **more)
        netlink.link("set", index=_index(bridge.name), group=bridge.group)
        # Its addresses are handed out by us alone; the check for duplicates would only delay their first use.
        duplicates = Path(f"/proc/sys/net/ipv6/conf/{bridge.name}/accept_dad")
        if duplicates.exists():
            duplicates.write_text("0")


def _veth(netlink: Any, veth: Veth) -> None:
    with _doing(f"the link {veth.name} cannot be made"):
        if exists(veth.name) and veth.peer not in in_namespace(veth.netns, names):
            # Its other end is in a namespace that lost its name.
            netlink.link("del", index=_index(veth.name))
        if not exists(veth.name):
            fd = os.open(NETNS_DIR / veth.netns, os.O_RDONLY | os.O_CLOEXEC)
            try:
                peer = {"ifname": veth.peer, "net_ns_fd": fd}
                netlink.link("add", ifname=veth.name, kind="veth", peer=peer)
            finally:
                os.close(fd)
        master = {"master": _index(veth.bridge)} if veth.bridge else {}
        netlink.link("set", index=_index(veth.name), state="up", **master)


def _address(netlink: Any, address: Address) -> None:
    wanted = ipaddress.ip_interface(address.cidr)
    flags = {"flags": _IFA_F_NODAD} if wanted.version == 6 else {}
    with _doing(f"the address {address.cidr} cannot be given to the link {address.link}"):
        where = {"index": _index(address.link), "address": str(wanted.ip), "prefixlen": wanted.network.prefixlen}
        netlink.addr("replace", **where, **flags)


def _route(netlink: Any, route: Route) -> None:
    family = socket.AF_INET6 if ":" in route.destination else socket.AF_INET
    with _doing(f"the route to {route.destination} by {route.via} cannot be set on the link {route.link}"):
        netlink.route("replace", family=family, dst=route.destination, gateway=route.via, oif=_index(route.link))


def _index(name: str) -> int:
    return socket.if_nametoindex(name)


def forget_datagrams(netns: str, addresses: set[str]) -> int:
    """Ends the kernel's memory of UDP flows that were turned to one of these addresses. Says how many there were."""
    body = partial(_forget_datagrams, frozenset(addresses))
    return kernel.in_netns(Path(netns), body) if netns else body()


def _forget_datagrams(addresses: frozenset[str]) -> int:
    from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple, NFCTSocket

    ended = 0
    with NFCTSocket() as flows, _doing("the kernel's flows cannot be read"):
        for family in (socket.AF_INET, socket.AF_INET6):
            for flow in list(flows.dump(tuple_orig=NFCTAttrTuple(family=family, proto=socket.IPPROTO_UDP))):
                answers = NFCTAttrTuple.from_netlink(family, flow.get_attr("CTA_TUPLE_REPLY"))
                asked = NFCTAttrTuple.from_netlink(family, flow.get_attr("CTA_TUPLE_ORIG"))
                if answers.saddr in addresses and asked.daddr != answers.saddr:
                    flows.entry("del", tuple_orig=asked)
                    ended += 1
    return ended


@contextmanager
def _netlink() -> Iterator[Any]:
    from pyroute2 import IPRoute

    with IPRoute() as netlink:
        yield netlink


@contextmanager
def _doing(failure: str) -> Iterator[None]:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except NetlinkError as err:
        raise NetworkError(f"{failure}: {os.strerror(err.code)}{_hint(err.code)}") from err
    except OSError as err:
        raise NetworkError(f"{failure}: {err.strerror or err}{_hint(err.errno or 0)}") from err


def _hint(code: int) -> str:
    if code == errno.EOPNOTSUPP:
        return " (does this kernel have bridge and veth?)"
    return " (root is needed)" if code == errno.EPERM else ""
