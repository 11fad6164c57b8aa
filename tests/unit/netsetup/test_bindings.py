"""What the bindings make of a Pod's NIC."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from virt_core.apis.bindings import TABLE
from virt_core.apis.netplan import NetDhcpOptions, NetPlan, NetPlanInterface, NetPort, NetReportInterface
from virt_netsetup import compose, nat
from virt_netsetup.bindings import bridge
from virt_netsetup.linksteps import AddAddress, AddLink, AddTap, SetMtu
from virt_netsetup.model import Address, NetsetupError, PodNic, Route
from virt_netsetup.nicsteps import TakeNic
from virt_netsetup.steps import InstallTables, StartDhcp, Sysctl
from virt_netsetup.tables import Table

IPV4, IPV6 = Address(ip="10.99.0.5", prefix=24), Address(ip="fd99::5", prefix=64)
DEFAULT = Route(destination="", gateway="10.99.0.1")


def nic(*addresses: Address, routes: tuple[Route, ...] = (DEFAULT,), name: str = "eth0") -> PodNic:
    return PodNic(index=2, name=name, mac="0a:58:0a:63:00:05", mtu=1450, addresses=addresses, routes=routes)


def plan(**fields: object) -> NetPlan:
    interface = NetPlanInterface(name="default", **fields)  # type: ignore[arg-type]
    return NetPlan(vmi_uid="uid-1", pod_pid=1, state_dir="/state", interfaces=[interface])


def wire(pod_nic: PodNic, **fields: object) -> tuple[list[object], NetReportInterface]:
    wanted = plan(**fields)
    wiring = compose.setup(wanted, wanted.interfaces[0], pod_nic, 0)
    return list(wiring.steps), wiring.report


def test_masquerade_makes_a_bridge_a_tap_rules_and_a_server() -> None:
    steps, report = wire(nic(IPV4), binding="masquerade", queues=4)
    assert AddLink("k6t-eth0", "bridge", "02:00:00:00:00:00", 1450) in steps
    assert AddAddress("k6t-eth0", Address(ip="10.0.2.1", prefix=24)) in steps
    assert AddTap("tap0", 107, 4) in steps
    assert SetMtu("tap0", 1450) in steps
    assert Sysctl("net/ipv4/ip_forward", "1") in steps
    assert Sysctl("net/ipv4/conf/k6t-eth0/route_localnet", "1") in steps
    assert isinstance(steps[-1], StartDhcp)
    assert (report.guest_ips, report.pod_ips, report.gateway) == (["10.0.2.2"], ["10.99.0.5"], "10.0.2.1")


def test_masquerade_sets_up_only_the_families_of_the_pod() -> None:
    families = {
        version: [
            table.family
            for step in wire(nic(*addresses), binding="masquerade")[0]
            if isinstance(step, InstallTables)
            for table in step.tables
        ]
        for version, addresses in {"4": (IPV4,), "6": (IPV6,), "46": (IPV4, IPV6)}.items()
    }
    assert families == {
        "4": ["netdev", "inet", "ip"],
        "6": ["netdev", "inet", "ip6"],
        "46": ["netdev", "inet", "ip", "ip6"],
    }
    link_local = Address(ip="fe80::1", prefix=64)
    with pytest.raises(NetsetupError, match="no global address"):
        wire(nic(link_local), binding="masquerade")


def test_masquerade_takes_the_ranges_of_the_plan() -> None:
    _, report = wire(
        nic(IPV4, IPV6), binding="masquerade", vm_network_cidr="192.168.7.0/30", vm_ipv6_network_cidr="fd77::/126"
    )
    assert report.guest_ips == ["192.168.7.2", "fd77::2"]
    assert (report.gateway, report.gateway_ipv6) == ("192.168.7.1", "fd77::1")


@pytest.mark.parametrize(
    ("field", "cidr", "message"),
    [
        ("vm_network_cidr", "10.0.2.0/31", "two host bits"),
        ("vm_network_cidr", "fd10::/120", "not an IPv4 range"),
        ("vm_ipv6_network_cidr", "fd10::/127", "two host bits"),
        ("vm_network_cidr", "nonsense", "does not appear"),
    ],
)
def test_masquerade_refuses_bad_ranges(field: str, cidr: str, message: str) -> None:
    with pytest.raises(NetsetupError, match=message) as caught:
        wire(nic(IPV4, IPV6), binding="masquerade", **{field: cidr})
    assert caught.value.critical


def test_router_advertisements_of_the_pod_network_survive_forwarding() -> None:
    accepting = PodNic(index=2, name="eth0", mac="", mtu=1500, addresses=(IPV6,), accepts_ra=True)
    step = Sysctl("net/ipv6/conf/eth0/accept_ra", "2")
    assert step in wire(accepting, binding="masquerade")[0]
    assert step not in wire(nic(IPV6), binding="masquerade")[0]


def test_mac_is_kept_or_made_up_the_same_each_time() -> None:
    assert wire(nic(IPV4), binding="masquerade", mac="02:AA:BB:CC:DD:EE")[1].mac == "02:aa:bb:cc:dd:ee"
    made = wire(nic(IPV4), binding="masquerade")[1].mac
    assert made == wire(nic(IPV4), binding="masquerade")[1].mac
    assert made.startswith("02:")
    assert wire(nic(IPV4), binding="bridge")[1].mac == "0a:58:0a:63:00:05"


def test_bridge_moves_the_nic_and_leaves_a_holder() -> None:
    steps, report = wire(nic(IPV4, IPV6), binding="bridge")
    taken = next(step for step in steps if isinstance(step, TakeNic))
    assert (taken.name, taken.bridge) == ("eth0-nic", "k6t-eth0")
    assert taken.mac not in ("0a:58:0a:63:00:05", "02:00:00:00:00:00")
    assert AddLink("eth0", "dummy", "0a:58:0a:63:00:05", 1450, "bridge") in steps
    assert AddAddress("eth0", IPV4) in steps
    assert AddAddress("k6t-eth0", Address(ip="169.254.75.10", prefix=32)) in steps
    assert Sysctl("net/ipv4/conf/all/arp_ignore", "1") in steps
    assert report.pod_ips == report.guest_ips == ["10.99.0.5", "fd99::5"]


def test_bridge_without_ipv4_has_no_server() -> None:
    steps, _ = wire(nic(IPV6, routes=()), binding="bridge")
    assert not any(isinstance(step, StartDhcp) for step in steps)
    assert "net/ipv4/conf/all/arp_ignore" not in [step.name for step in steps if isinstance(step, Sysctl)]


def test_bridge_hands_on_gateway_and_routes() -> None:
    connected = Route(destination="10.99.0.0/24", protocol=2)
    far = Route(destination="10.98.0.0/16", gateway="10.99.0.2")
    on_link = Route(destination="169.254.1.1/32")
    steps, report = wire(nic(IPV4, routes=(far, connected, on_link, DEFAULT)), binding="bridge")
    server = next(step.server for step in steps if isinstance(step, StartDhcp))
    assert (report.gateway, server.options.router) == ("10.99.0.1", "10.99.0.1")
    assert server.options.routes == (("10.98.0.0/16", "10.99.0.2"), ("169.254.1.1/32", ""))
    assert server.mac == "0a:58:0a:63:00:05"


def test_bridge_without_default_route_takes_the_first_hop() -> None:
    far = Route(destination="10.98.0.0/16", gateway="10.99.0.2")
    assert bridge.gateway(nic(IPV4, routes=(far,))) == "10.99.0.2"
    assert bridge.gateway(nic(IPV4, routes=())) == ""


def rules_of(table: Table, chain: str) -> list[list[dict[str, object]]]:
    return [rule for name, rule in table.rules if name == chain]


NET = nat.GuestNet(4, "10.0.2.1", "10.0.2.2", 24)


def test_all_ports_go_to_the_guest_by_default() -> None:
    table = nat.table(nic(IPV4), NET, [])
    assert rules_of(table, nat.PRE) == [[{"counter": None}, {"dnat": {"addr": "10.0.2.2"}}]]
    assert len(rules_of(table, "output")) == len(rules_of(table, nat.POST)) == 1


def test_listed_ports_only() -> None:
    table = nat.table(nic(IPV4), NET, [NetPort(port=80), NetPort(port=53, protocol="UDP")])
    first, second = rules_of(table, nat.PRE)
    assert first[0] == {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 80}}
    assert second[0]["match"]["left"] == {"payload": {"protocol": "udp", "field": "dport"}}  # type: ignore[index]
    assert table.marker != nat.table(nic(IPV4), NET, [NetPort(port=81)]).marker


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"binding": "slirp"}, "binding"),
        ({"mac": "02:00:00:00:00:00"}, "mac"),
        ({"mac": "nonsense"}, "mac"),
        ({"pod_interface": "../eth0"}, "podInterface"),
        ({"pod_interface": "a-name-that-is-too-long"}, "podInterface"),
        ({"queues": 257}, "queues"),
        ({"ports": [NetPort(port=0)]}, "ports"),
        ({"ports": [NetPort(port=1, protocol="ICMP")]}, "ports"),
        ({"hostname": "a\nb"}, "hostname"),
        ({"hostname": "a\n"}, "hostname"),
        ({"search_domains": ["x,y"]}, "searchDomains"),
        ({"dns_servers": ["not-an-ip"]}, "dnsServers"),
    ],
)
def test_bad_plans_are_refused_by_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(NetsetupError) as caught:
        compose.check_plan(plan(**{"binding": "masquerade", **change}))
    assert caught.value.step == f"interfaces[0].{field}"
    assert caught.value.critical


def test_bad_plans_as_a_whole() -> None:
    compose.check_plan(plan(binding="masquerade"))
    with pytest.raises(NetsetupError, match="not a UID"):
        compose.check_plan(NetPlan(vmi_uid="../x", pod_pid=1, state_dir="/s"))
    for pod_uid in ("../x", "..", "a/b"):
        with pytest.raises(NetsetupError, match="not a UID") as caught:
            compose.check_plan(NetPlan(vmi_uid="x", pod_uid=pod_uid, pod_pid=1, state_dir="/s"))
        assert caught.value.step == "podUid"
    with pytest.raises(NetsetupError, match="podPid or netnsPath"):
        compose.check_plan(NetPlan(vmi_uid="x", state_dir="/s"))
    twice = plan(binding="masquerade")
    twice.interfaces.append(twice.interfaces[0])
    with pytest.raises(NetsetupError, match="same Pod interface"):
        compose.check_plan(twice)


def spelled(table: Table, chain: str) -> list[str]:
    return [str(rule) for rule in rules_of(table, chain)]


def test_a_range_of_ports_is_one_rule_a_chain() -> None:
    table = nat.table(nic(IPV4), NET, [NetPort(port=7000, last=7010, protocol="UDP")])
    for chain in (nat.PRE, nat.POST, "output"):
        [rule] = spelled(table, chain)
        assert "{'payload': {'protocol': 'udp', 'field': 'dport'}}, 'right': {'range': [7000, 7010]}" in rule


def test_a_mesh_takes_what_comes_from_outside() -> None:
    table = nat.table(nic(IPV4), NET, [], mesh=True)
    [ssh] = spelled(table, nat.PRE)
    assert "'right': 22" in ssh
    own, rest = spelled(table, "output")
    assert "15090" in own
    assert own.endswith("{'return': None}]")
    assert "10.99.0.5" in rest, "the proxy connects to the Pod's address"
    assert "'right': 22" not in "".join(spelled(table, nat.POST))


@pytest.mark.parametrize(
    "ports", [[{"port": 0}], [{"port": 5, "last": 4}], [{"port": 5, "last": 65536}], [{"port": 5, "protocol": "ICMP"}]]
)
def test_ports_that_are_none(ports: list[dict[str, object]]) -> None:
    wanted = plan(binding="masquerade", ports=[NetPort(**fields) for fields in ports])  # type: ignore[arg-type]
    with pytest.raises(NetsetupError) as caught:
        compose.check_plan(wanted)
    assert caught.value.step == "interfaces[0].ports"


@pytest.mark.parametrize("option", ["boot_file_name", "tftp_server_name"])
def test_an_option_that_no_packet_takes(option: str) -> None:
    options = NetDhcpOptions(**{option: "x" * 256})  # type: ignore[arg-type]
    with pytest.raises(NetsetupError, match="255 bytes"):
        compose.check_plan(plan(binding="masquerade", dhcp_options=options))


def test_a_managed_tap_is_a_bridge_under_the_same_guard_without_a_server() -> None:
    bridged, _ = wire(nic(IPV4, IPV6), binding="bridge")
    steps, report = wire(nic(IPV4, IPV6), binding="managedTap")
    extra = [step for step in bridged if step not in steps]
    assert [type(step) for step in extra] == [AddAddress, StartDhcp]
    assert [step for step in steps if step not in bridged] == []
    assert any(isinstance(step, InstallTables) for step in steps)
    assert (report.tap, report.mac) == ("tap0", "0a:58:0a:63:00:05")


def test_passt_needs_no_link_but_ports_and_echoes() -> None:
    steps, report = wire(nic(IPV4, IPV6), binding="passtBinding")
    assert steps == [
        Sysctl("net/ipv4/ip_unprivileged_port_start", "0"),
        Sysctl("net/ipv4/ping_group_range", "107\t107"),
    ]
    assert (report.tap, report.bridge, report.guest_ips) == ("", "", ["10.99.0.5", "fd99::5"])
    with pytest.raises(NetsetupError, match="no global address"):
        wire(nic(), binding="passtBinding")


def test_a_plugins_own_tap_is_only_told_of() -> None:
    given = replace(nic(IPV4), given_tap="tap0")
    steps, report = wire(given, binding="tap", mac="02:AA:BB:CC:DD:EE")
    assert (steps, report.tap, report.mac) == ([], "tap0", "02:aa:bb:cc:dd:ee")
    with pytest.raises(NetsetupError, match="made no TAP"):
        wire(nic(IPV4), binding="tap")
    assert wire(nic(IPV4), binding="sidecar")[1].tap == ""


def test_every_row_that_is_wired_has_its_steps() -> None:
    for row in TABLE.values():
        check = NetPlan(
            vmi_uid="u", pod_pid=1, state_dir="/s", interfaces=[NetPlanInterface(name="n", binding=row.name)]
        )
        if row.wired:
            compose.check_plan(check)
        else:
            with pytest.raises(NetsetupError, match="not a known binding"):
                compose.check_plan(check)
