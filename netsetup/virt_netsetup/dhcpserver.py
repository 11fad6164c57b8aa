"""A DHCP server for one bridge as a value, and the words that dnsmasq is started with. Pure."""

from __future__ import annotations

import ipaddress

from virt_netsetup.model import Address, Value

# 999 days: the guest's address does not change while it lives, and some clients stumble over an endless lease.
LEASE_S = 86313600

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
        optional = [
            ("domain-search", ",".join(given.search)),
            ("domain-name", given.search[0] if given.search else ""),
            ("12", given.hostname),
            ("ntp-server", ",".join(given.ntp)),
            ("tftp-server", given.tftp_server),
            ("bootfile-name", given.boot_file),
            *((str(number), value) for number, value in given.private),
        ]
        # An empty router or name server must be said, or dnsmasq offers itself.
        words = [_option(name, value) for name, value in values if value or name in ("router", "dns-server")]
        return words + [_option(name, value) for name, value in optional if value]

    def _routes(self) -> str:
        """A client that takes classless routes ignores the router option, so the default route comes along, last."""
        given = self.options
        if not given.routes:
            return ""
        routes = [f"{destination},{hop or '0.0.0.0'}" for destination, hop in given.routes]
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


def _option(name: str, value: str) -> str:
    key = name if name.isdigit() else f"option:{name}"
    return f"--dhcp-option={key},{value}" if value else f"--dhcp-option={key}"
