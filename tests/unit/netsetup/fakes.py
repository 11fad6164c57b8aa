"""A kernel, a firewall and DHCP servers that live in memory and obey the rules that matter to netsetup."""

from __future__ import annotations

import copy
import errno
import ipaddress
from collections.abc import Sequence
from typing import Any

from virt_core.apis.netplan import NetServer
from virt_netsetup.dhcpserver import DhcpServer
from virt_netsetup.model import Address, Link, Route
from virt_netsetup.tables import Table

SYSCTL_DEFAULTS = {
    "net/ipv4/ip_forward": "0",
    "net/ipv6/conf/all/forwarding": "0",
    "net/ipv4/conf/all/arp_ignore": "0",
}
LINK_SYSCTLS = {
    "net/ipv4/conf/{}/route_localnet": "0",
    "net/ipv6/conf/{}/disable_ipv6": "0",
    "net/ipv6/conf/{}/accept_ra": "1",
    "net/ipv4/conf/{}/forwarding": "0",
    "net/ipv6/conf/{}/forwarding": "0",
}


class Failing:
    """Counts the calls that change something and fails at the one that is asked for."""

    def __init__(self) -> None:
        self.calls = 0
        self.fail_at = 0

    def changed(self, what: str) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise OSError(errno.EIO, f"injected failure at call {self.calls}: {what}")


class FakeKernel:
    def __init__(self, failing: Failing, kinds: tuple[str, ...] = ("bridge", "dummy")) -> None:
        self._failing = failing
        self._kinds = kinds
        self._next = 1
        self._links: dict[int, dict[str, Any]] = {}
        self._addresses: dict[int, list[Address]] = {}
        self._routes: dict[int, list[Route]] = {}
        self._sysctls = dict(SYSCTL_DEFAULTS)

    def snapshot(self) -> Any:
        """Everything but the indexes of links that come and go."""
        links = [
            (link["name"], link["kind"], link["mac"], link["mtu"], link["up"], link["master"])
            for link in self._links.values()
        ]
        state = (
            sorted(links),
            self._addresses,
            {k: sorted(map(repr, v)) for k, v in self._routes.items() if v},
            self._sysctls,
        )
        return copy.deepcopy(state)

    def plug(self, name: str, mac: str, mtu: int, addresses: list[Address], routes: list[Route]) -> int:
        """What the CNI plugin does."""
        index = self._add(name, "veth", mac, mtu)
        self._links[index]["up"] = True
        self._addresses[index] = list(addresses)
        self._routes[index] = [*self._connected(addresses), *routes]
        return index

    def link(self, name: str) -> Link | None:
        return next((link for link in self.links() if link.name == name), None)

    def links(self) -> list[Link]:
        return [Link(index=index, **link) for index, link in self._links.items()]

    def addresses(self, index: int) -> list[Address]:
        return list(self._addresses.get(index, []))

    def routes(self, index: int) -> list[Route]:
        return list(self._routes.get(index, []))

    def add_link(self, name: str, kind: str, mac: str, mtu: int) -> None:
        self._failing.changed(f"add {name}")
        if kind not in self._kinds:
            raise OSError(errno.EOPNOTSUPP, "Unknown device type")
        self._add(name, kind, mac, mtu)

    def add_tap(self, name: str, uid: int, queues: int) -> None:
        self._failing.changed(f"add {name}")
        self._add(name, "tun", "02:00:00:00:00:99", 1500)

    def _add(self, name: str, kind: str, mac: str, mtu: int) -> int:
        if any(link["name"] == name for link in self._links.values()):
            raise OSError(errno.EEXIST, name)
        index, self._next = self._next, self._next + 1
        self._links[index] = {"name": name, "kind": kind, "mac": mac, "mtu": mtu}
        self._links[index] |= {"up": False, "master": 0, "learning": None}
        self._sysctls |= {key.format(name): value for key, value in LINK_SYSCTLS.items()}
        self._addresses[index] = []
        return index

    def delete_link(self, index: int) -> None:
        self._failing.changed(f"delete {index}")
        name = self._links.pop(index)["name"]
        self._addresses.pop(index, None)
        self._routes.pop(index, None)
        for key in LINK_SYSCTLS:
            self._sysctls.pop(key.format(name), None)
        for link in self._links.values():
            if link["master"] == index:
                link["master"], link["learning"] = 0, None

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
        self._failing.changed(f"set {index} {name} {mac} {mtu} {master} {up}")
        link = self._links[index]
        if name:
            self._rename(link, name)
        link["mac"] = mac or link["mac"]
        link["mtu"] = mtu or link["mtu"]
        if master is not None:
            link["master"], link["learning"] = master, True if master else None
        if up is not None:
            self._set_up(index, up)

    def _rename(self, link: dict[str, Any], name: str) -> None:
        if link["up"]:
            raise OSError(errno.EBUSY, "the link is up")
        if any(other["name"] == name for other in self._links.values()):
            raise OSError(errno.EEXIST, name)
        for key in LINK_SYSCTLS:
            self._sysctls[key.format(name)] = self._sysctls.pop(key.format(link["name"]))
        link["name"] = name

    def _set_up(self, index: int, up: bool) -> None:
        """Going down costs a link its routes and its IPv6 addresses."""
        if not up:
            self._routes[index] = []
            self._addresses[index] = [address for address in self._addresses[index] if address.version == 4]
        elif not self._links[index]["up"]:
            self._routes[index] = self._connected(self._addresses[index])
        self._links[index]["up"] = up

    @staticmethod
    def _connected(addresses: list[Address]) -> list[Route]:
        networks = [ipaddress.ip_network(str(address), strict=False) for address in addresses]
        return [Route(destination=str(network), version=network.version, protocol=2) for network in networks]

    def set_learning(self, index: int, learning: bool) -> None:
        self._failing.changed(f"learning {index}")
        if not self._links[index]["master"]:
            raise OSError(errno.EINVAL, "not a port")
        self._links[index]["learning"] = learning

    def add_address(self, index: int, address: Address) -> None:
        self._failing.changed(f"add {address}")
        if address not in self._addresses[index]:
            self._addresses[index].append(address)
            if self._links[index]["up"]:
                self._routes.setdefault(index, []).extend(self._connected([address]))

    def delete_address(self, index: int, address: Address) -> None:
        self._failing.changed(f"delete {address}")
        self._addresses[index].remove(address)
        self._routes[index] = [route for route in self._routes.get(index, []) if route.version != address.version]

    def add_route(self, index: int, route: Route) -> None:
        self._failing.changed(f"add {route}")
        if not self._links[index]["up"]:
            raise OSError(errno.ENETDOWN, "the link is down")
        if route.gateway and not self._reachable(index, route.gateway):
            raise OSError(errno.ENETUNREACH, f"no way to {route.gateway}")
        self._routes.setdefault(index, []).append(route)

    def _reachable(self, index: int, gateway: str) -> bool:
        ip = ipaddress.ip_address(gateway)
        on_link = [route for route in self._routes.get(index, []) if not route.gateway and route.destination]
        return any(ip in ipaddress.ip_network(route.destination) for route in on_link)

    def read_sysctl(self, name: str) -> str:
        if name not in self._sysctls:
            raise FileNotFoundError(errno.ENOENT, name)
        return self._sysctls[name]

    def write_sysctl(self, name: str, value: str) -> None:
        self._failing.changed(f"sysctl {name}")
        self.read_sysctl(name)
        self._sysctls[name] = value


class FakeFirewall:
    def __init__(self, failing: Failing) -> None:
        self._failing = failing
        self.tables: dict[tuple[str, str], Table] = {}

    def install(self, tables: Sequence[Table]) -> None:
        self._failing.changed(f"install {[table.name for table in tables]}")
        self.tables |= {(table.family, table.name): table for table in tables}

    def remove(self, family: str, name: str) -> None:
        self._failing.changed(f"remove {name}")
        del self.tables[family, name]

    def exists(self, family: str, name: str) -> bool:
        return (family, name) in self.tables

    def has(self, table: Table) -> bool:
        return self.tables.get((table.family, table.name)) == table


class FakeDhcp:
    def __init__(self, failing: Failing) -> None:
        self._failing = failing
        self.servers: dict[str, DhcpServer] = {}

    def runs(self, server: DhcpServer) -> bool:
        return self.servers.get(server.name) == server

    def start(self, server: DhcpServer) -> None:
        self._failing.changed(f"start {server.name}")
        self.servers[server.name] = server

    def stop(self, name: str) -> None:
        self._failing.changed(f"stop {name}")
        self.servers.pop(name, None)

    def alive(self, name: str) -> bool:
        return name in self.servers

    def known(self, name: str) -> bool:
        return name in self.servers

    def process(self, name: str) -> NetServer | None:
        return NetServer(name=name, pid=7, start_time=1) if name in self.servers else None
