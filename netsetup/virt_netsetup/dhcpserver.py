"""A DHCP server for one bridge as a value, and the words that dnsmasq is started with. Pure."""

from __future__ import annotations

import ipaddress

from virt_netsetup.model import Address, Value

# 999 days: the guest's address does not change while it lives, and some clients stumble over an endless lease.
LEASE_S = 86313600

#: Bytes in one option of DHCPv4.
MAX_OPTION = 255

_FIXED = (
    "--keep-in-foreground",
    "--conf-file=",
    "--pid-file=",
    "--log-facility=-",
    "--user=",
    "--port=0",
    "--no-hosts",
    "--no-resolv",
    "--no-ping",
    "--leasefile-ro",
    "--bind-interfaces",
    "--except-interface=lo",
    "--dhcp-authoritative",
    "--dhcp-broadcast",
    "--dhcp-ignore-clid",
    "--quiet-dhcp",
    "--quiet-dhcp6",
    "--quiet-ra",
)


class DhcpOptions(Value, frozen=True):
    """What the guest is told beside its address."""

    mtu: int
    hostname: str = ""
    router: str = ""
    search: tuple[str, ...] = ()
    dns4: tuple[str, ...] = ()
    dns6: tuple[str, ...] = ()
    ntp: tuple[str, ...] = ()
    boot_file: str = ""
    tftp_server: str = ""
    routes: tuple[tuple[str, str], ...] = ()
    private: tuple[tuple[int, str], ...] = ()


class DhcpServer(Value, frozen=True):
    """One address a family to hand out on one bridge. With a MAC only that guest is answered, else whoever asks."""

    name: str
    interface: str
    options: DhcpOptions
    address4: Address | None = None
    address6: Address | None = None
    mac: str = ""

    def arguments(self) -> list[str]:
        words = [*_FIXED, f"--interface={self.interface}"]
        if self.address4:
            words += self._range4(self.address4) + self._options4()
        if self.address6:
            words += self._range6(self.address6)
        return words

    def _range4(self, address: Address) -> list[str]:
        mask = ipaddress.ip_network(f"{address.ip}/{address.prefix}", strict=False).netmask
        if not self.mac:
            return [f"--dhcp-range={address.ip},{address.ip},{mask},{LEASE_S}"]
        # The bridge's own address is in another network, so dnsmasq has to be told which range belongs to it.
        return [
            f"--dhcp-range={address.ip},static,{mask},{LEASE_S}",
            f"--shared-network={self.interface},{address.ip}",
            f"--dhcp-host={self.mac},{address.ip},{LEASE_S}",
            "--dhcp-ignore=tag:!known",
        ]

    def _options4(self) -> list[str]:
        given = self.options
        values = [
            ("router", given.router),
            ("dns-server", ",".join(given.dns4)),
            ("mtu", str(given.mtu)),
            ("classless-static-route", self._routes()),
        ]
        routes = classless_routes(_as_many(given.routes, given.router), given.router)
        optional = [
            ("domain-search", ",".join(_fitting(given.search))),
            ("domain-name", given.search[0] if given.search else ""),
            ("12", given.hostname),
            ("ntp-server", ",".join(given.ntp)),
            ("tftp-server", given.tftp_server),
            ("bootfile-name", given.boot_file),
            # What older clients know of routes: those of whole classes, and Microsoft's number for all of them.
            ("static-route", ",".join(f"{net},{hop}" for net, hop in classful_routes(given.routes))),
            ("249", _bytes(routes)),
            *((str(number), _bytes(value.encode())) for number, value in given.private),
        ]
        # An empty router or name server must be said, or dnsmasq offers itself.
        words = [_option(name, value) for name, value in values if value or name in ("router", "dns-server")]
        return words + [_option(name, value) for name, value in optional if value]

    def _routes(self) -> str:
        """A client that takes classless routes ignores the router option, so the default route comes along, last."""
        given = self.options
        if not given.routes:
            return ""
        kept = _as_many(given.routes, given.router)
        routes = [f"{destination},{hop or '0.0.0.0'}" for destination, hop in kept]
        return ",".join([*routes, f"0.0.0.0/0,{given.router}"] if given.router else routes)

    def _range6(self, address: Address) -> list[str]:
        words = [
            "--enable-ra",
            f"--dhcp-range={address.ip},{address.ip},{address.prefix},{LEASE_S}",
            f"--ra-param={self.interface},mtu:{self.options.mtu},60",
        ]
        if self.options.dns6:
            words.append("--dhcp-option=option6:dns-server," + ",".join(f"[{server}]" for server in self.options.dns6))
        if self.options.search:
            words.append("--dhcp-option=option6:domain-search," + ",".join(self.options.search))
        return words


def _bytes(data: bytes) -> str:
    """As dnsmasq takes bytes and guesses nothing: by itself it makes an address or a number of what looks like one,
    and a list of what has a comma."""
    return data.hex(":") if len(data) != 1 else str(data[0])


def _fitting(domains: tuple[str, ...]) -> list[str]:
    """As many as the option can hold, each with its length before each label and an end."""
    fitting, used = [], 0
    for domain in domains:
        used += len(domain) + 2
        if used > MAX_OPTION:
            break
        fitting.append(domain)
    return fitting


def classful_routes(routes: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Those that can be said without a mask: to one host, or to a whole network of its class."""
    found = []
    for destination, hop in routes:
        net = ipaddress.IPv4Network(destination)
        first = int(net.network_address) >> 24
        own = 8 if first < 128 else 16 if first < 192 else 24
        if hop and int(net.network_address) and net.prefixlen in (own, 32):
            found.append((str(net.network_address), hop))
    return found


def _as_many(routes: tuple[tuple[str, str], ...], router: str) -> tuple[tuple[str, str], ...]:
    """The first that fit into one option, beside the default route."""
    while len(classless_routes(routes, router)) > MAX_OPTION:
        routes = routes[:-1]
    return routes


def classless_routes(routes: tuple[tuple[str, str], ...], router: str) -> bytes:
    """The routes as RFC 3442 writes them, the default one last; nothing where the router alone says all."""
    if not routes:
        return b""
    data = b""
    for destination, hop in [*routes, *([("0.0.0.0/0", router)] if router else [])]:
        net = ipaddress.IPv4Network(destination)
        significant = net.network_address.packed[: (net.prefixlen + 7) // 8]
        data += bytes([net.prefixlen]) + significant + ipaddress.IPv4Address(hop or "0.0.0.0").packed
    return data


def _option(name: str, value: str) -> str:
    key = name if name.isdigit() else f"option:{name}"
    return f"--dhcp-option={key},{value}" if value else f"--dhcp-option={key}"
