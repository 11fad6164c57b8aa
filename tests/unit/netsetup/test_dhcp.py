"""The command line that dnsmasq gets."""

from __future__ import annotations

from pathlib import Path

from virt_netsetup import dhcp
from virt_netsetup.dhcp import Dnsmasq, Started
from virt_netsetup.dhcpserver import DhcpOptions, DhcpServer, classless_routes
from virt_netsetup.model import Address
from virt_netsetup.process import Placement, start_time

GUEST = Address(ip="10.0.2.2", prefix=24)


def arguments(**fields: object) -> list[str]:
    options = DhcpOptions(**{"mtu": 1450, **fields})  # type: ignore[arg-type]
    return DhcpServer(name="eth0", interface="k6t-eth0", options=options, address4=GUEST).arguments()


def test_reads_and_writes_nothing_of_the_host() -> None:
    words = arguments()
    assert {"--conf-file=", "--no-hosts", "--no-resolv", "--leasefile-ro", "--port=0", "--pid-file="} <= set(words)
    assert "--interface=k6t-eth0" in words


def test_masquerade_answers_whoever_asks_with_the_one_address() -> None:
    words = arguments(router="10.0.2.1", dns4=("10.96.0.10", "1.1.1.1"), hostname="vm")
    assert "--dhcp-range=10.0.2.2,10.0.2.2,255.255.255.0,86313600" in words
    assert "--dhcp-option=option:router,10.0.2.1" in words
    assert "--dhcp-option=option:dns-server,10.96.0.10,1.1.1.1" in words
    assert "--dhcp-option=option:mtu,1450" in words
    assert "--dhcp-option=12,vm" in words
    assert not any("static-route" in word or "dhcp-host" in word for word in words)


def test_empty_router_and_name_servers_are_said() -> None:
    """Else dnsmasq would offer itself, and it serves no names."""
    words = arguments()
    assert "--dhcp-option=option:router" in words
    assert "--dhcp-option=option:dns-server" in words


def test_bridge_answers_only_its_guest() -> None:
    server = DhcpServer(
        name="eth0", interface="k6t-eth0", options=DhcpOptions(mtu=1500), address4=GUEST, mac="02:00:00:00:00:01"
    )
    words = server.arguments()
    assert "--dhcp-host=02:00:00:00:00:01,10.0.2.2,86313600" in words
    assert "--dhcp-ignore=tag:!known" in words
    assert "--shared-network=k6t-eth0,10.0.2.2" in words


def test_classless_routes_end_with_the_default_one() -> None:
    words = arguments(router="10.0.2.1", routes=(("169.254.1.1/32", ""), ("10.98.0.0/16", "10.0.2.9")))
    expected = "169.254.1.1/32,0.0.0.0,10.98.0.0/16,10.0.2.9,0.0.0.0/0,10.0.2.1"
    assert f"--dhcp-option=option:classless-static-route,{expected}" in words


def test_extra_options() -> None:
    words = arguments(
        search=("a.b", "b"), ntp=("10.0.0.7",), boot_file="x.efi", tftp_server="boot", private=((224, "hi"),)
    )
    assert "--dhcp-option=option:domain-search,a.b,b" in words
    assert "--dhcp-option=option:domain-name,a.b" in words
    assert "--dhcp-option=option:ntp-server,10.0.0.7" in words
    assert "--dhcp-option=option:bootfile-name,x.efi" in words
    assert "--dhcp-option=option:tftp-server,boot" in words
    assert f"--dhcp-option=224,{b'hi'.hex(':')}" in words


def test_a_value_is_sent_as_it_is() -> None:
    """dnsmasq would make an address, a number or a list of these."""
    words = arguments(private=((224, "7"), (225, "a,b"), (226, "")))
    assert "--dhcp-option=224,55" in words, "the number of the letter"
    assert "--dhcp-option=225,61:2c:62" in words
    assert not any(word.startswith("--dhcp-option=226") for word in words)


def test_search_domains_as_far_as_they_fit() -> None:
    domains = tuple(f"{letter * 60}.test" for letter in "abcde")
    assert f"--dhcp-option=option:domain-search,{','.join(domains[:3])}" in arguments(search=domains)


def test_routes_for_clients_old_and_new() -> None:
    routes = (
        ("169.254.1.1/32", ""),
        ("10.0.0.0/8", "10.0.2.9"),
        ("10.98.0.0/16", "10.0.2.9"),
        ("1.2.3.4/32", "10.0.2.8"),
    )
    words = arguments(router="10.0.2.1", routes=routes)
    assert "--dhcp-option=option:static-route,10.0.0.0,10.0.2.9,1.2.3.4,10.0.2.8" in words
    microsoft = (
        "20:a9:fe:01:01:00:00:00:00:08:0a:0a:00:02:09:10:0a:62:0a:00:02:09:20:01:02:03:04:0a:00:02:08:00:0a:00:02:01"
    )
    assert f"--dhcp-option=249,{microsoft}" in words


def test_of_many_routes_as_many_as_fit_and_the_default_one() -> None:
    routes = tuple((f"10.{number}.0.0/16", "10.0.2.9") for number in range(60))
    [word] = [word for word in arguments(router="10.0.2.1", routes=routes) if "classless-static-route" in word]
    assert word.endswith(",0.0.0.0/0,10.0.2.1")
    assert len(classless_routes(routes[:35], "10.0.2.1")) == 250
    assert "10.34.0.0/16" in word
    assert "10.35.0.0/16" not in word


def test_ipv6_range_advertisement_and_name_servers() -> None:
    options = DhcpOptions(mtu=1450, dns6=("fd96::a",), search=("a.b",))
    server = DhcpServer(
        name="eth0", interface="k6t-eth0", options=options, address6=Address(ip="fd10:0:2::2", prefix=120)
    )
    words = server.arguments()
    assert "--enable-ra" in words
    assert "--dhcp-range=fd10:0:2::2,fd10:0:2::2,120,86313600" in words
    assert "--dhcp-option=option6:dns-server,[fd96::a]" in words
    assert "--ra-param=k6t-eth0,mtu:1450,60" in words
    assert not any(word.startswith("--dhcp-option=option:") for word in words)


def test_a_recycled_process_id_is_not_ours(tmp_path: Path) -> None:
    """Process 1 is alive, but it did not start when our server did: it must not be signalled."""
    from virt_core.apis.base import encode

    servers = Dnsmasq(tmp_path, Placement())
    server = DhcpServer(name="eth0", interface="k6t-eth0", options=DhcpOptions(mtu=1500))
    record = Started(pid=1, start_time=12345678901, digest=dhcp._digest(server))
    (tmp_path / "eth0.dnsmasq.json").write_bytes(encode(record))
    assert start_time(1) is not None
    assert servers.known("eth0")
    assert not servers.runs(server)
    servers.stop("eth0")
    assert list(tmp_path.iterdir()) == []
    assert start_time(1) is not None
