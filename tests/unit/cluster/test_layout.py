"""Names, addresses and command lines of the test cluster: what must not collide does not, what must agree agrees."""

from __future__ import annotations

import ipaddress
from itertools import combinations
from pathlib import Path

import pytest
from tests.cluster import commands, network
from tests.cluster.errors import ClusterError
from tests.cluster.layout import MAX_NODES, OTHER_OCTETS, Layout, claimed_octets, load, make_layout, save

from virt_local.up.links import Route

PROGRAMS = Path("/cache/programs")


def test_no_two_ranges_of_a_cluster_overlap() -> None:
    layout = make_layout("virtpod", 240, MAX_NODES, ipv6=True)
    bridge = (f"{layout.bridge_address}/24", f"{layout.bridge_address_v6}/64")
    for version in (0, 1):
        nodes = [(node.pod_cidr, node.pod_cidr_v6)[version] for node in layout.nodes]
        pods, services = layout.pod_cidrs[version], layout.service_cidrs[version]
        whole = ipaddress.ip_network((layout.network, layout.network_v6)[version])
        separate = [ipaddress.ip_network(each, strict=False) for each in (*nodes, services, bridge[version])]
        assert not [pair for pair in combinations(separate, 2) if pair[0].overlaps(pair[1])]
        assert all(each.subnet_of(whole) for each in separate)  # type: ignore[arg-type]
        assert all(
            ipaddress.ip_network(each).subnet_of(ipaddress.ip_network(pods))  # type: ignore[arg-type]
            for each in nodes
        )


def test_the_api_servers_service_address_is_the_first_of_its_range() -> None:
    layout = Layout()
    assert layout.api_service_address == str(next(ipaddress.ip_network(layout.service_cidrs[0]).hosts()))


def test_link_names_fit_into_the_kernels_limit() -> None:
    layout = make_layout("ninechars", 240, MAX_NODES, ipv6=True)
    assert all(len(name) < 16 for name in (layout.bridge, *(node.veth for node in layout.nodes)))


@pytest.mark.parametrize("name", ["", "Upper", "1st", "tencharsss", "a-b", "../x"])
def test_a_name_that_cannot_name_links_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="1 to 9 small letters"):
        make_layout(name, 240, 1, ipv6=True)


@pytest.mark.parametrize("nodes", [0, -1, MAX_NODES + 1])
def test_node_counts_have_limits(nodes: int) -> None:
    with pytest.raises(ClusterError, match=r"NODES must be between 1 and \d+"):
        make_layout("virtpod", 240, nodes, ipv6=True)


def test_a_layout_survives_its_file(tmp_path: Path) -> None:
    layout = make_layout("aa", 225, 3, ipv6=False, root=tmp_path)
    assert load("aa", tmp_path) is None
    save(layout)
    assert load("aa", tmp_path) == layout


def test_a_broken_file_names_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "aa").mkdir()
    (tmp_path / "aa" / "settings.json").write_text("{")
    with pytest.raises(ClusterError, match="make cluster-down"):
        load("aa", tmp_path)


def test_an_unknown_node_is_named_with_those_there_are() -> None:
    with pytest.raises(ClusterError, match="no node 'node3'; it has node1, node2"):
        make_layout("virtpod", 240, 2, ipv6=True).node("node3")


def test_the_default_network_is_fixed_and_others_give_way() -> None:
    assert network.choose_octet("virtpod", [("eth0", "192.0.2.0/24")]) == 240
    with pytest.raises(ClusterError, match=r"10\.240\.0\.0/16 is in use here \(10\.240\.3\.0/24 on eth1\)"):
        network.choose_octet("virtpod", [("eth1", "10.240.3.0/24")])
    taken = [("br7", f"10.{OTHER_OCTETS[0]}.0.0/24")]
    assert network.choose_octet("aa", taken) == OTHER_OCTETS[1]
    assert network.choose_octet("aa", taken, {OTHER_OCTETS[1]}) == OTHER_OCTETS[2]


def test_other_clusters_claims_are_read_from_their_settings(tmp_path: Path) -> None:
    for name, octet in (("aa", 225), ("bb", 226)):
        save(make_layout(name, octet, 1, ipv6=True, root=tmp_path))
    (tmp_path / "bb" / "settings.json").write_text("{")
    assert claimed_octets(tmp_path) == {225}


def test_routes_lead_to_every_nodes_pods_from_everywhere() -> None:
    layout = make_layout("virtpod", 240, 3, ipv6=True)
    host = set(network.host_plan(layout).routes)
    for node in layout.nodes:
        assert Route(node.pod_cidr, node.address, layout.bridge) in host
        assert Route(node.pod_cidr_v6, node.address_v6, layout.bridge) in host
        reached = {route.destination for route in network.node_plan(layout, node).routes}
        others = {other.pod_cidr for other in layout.nodes if other != node}
        assert others < reached
        assert node.pod_cidr not in reached


def test_without_ipv6_nothing_speaks_of_it() -> None:
    layout = make_layout("virtpod", 240, 2, ipv6=False)
    plans = [network.host_plan(layout), *(network.node_plan(layout, node) for node in layout.nodes)]
    assert not [route for plan in plans for route in plan.routes if "::" in route.destination]
    assert "ip6" not in network.nft_script(layout)
    words = [arg for program in commands.control_plane(layout, PROGRAMS) for arg in program.argv]
    assert not [word for word in words if "fd00" in word]


def test_only_the_api_and_the_names_are_served_where_pods_can_reach_them() -> None:
    layout = Layout()
    outside = {
        program.name
        for program in commands.control_plane(layout, PROGRAMS)
        for address, _ in program.listens
        if not address.startswith("127.")
    }
    assert outside == {"apiserver", "dns"}


def test_every_component_is_one_that_tests_may_name() -> None:
    layout = make_layout("virtpod", 240, 1, ipv6=True)
    assert tuple(program.name for program in commands.control_plane(layout, PROGRAMS)) == commands.CONTROL_PLANE
    assert tuple(program.name for program in commands.node(layout, layout.nodes[0], PROGRAMS)) == commands.NODE


def test_a_node_is_given_up_only_after_several_missed_renewals() -> None:
    """The kubelet renews its lease every quarter of its duration."""
    assert commands.NODE_GRACE_S >= 4 * commands.NODE_LEASE_S / 4
