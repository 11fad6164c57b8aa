"""Names, addresses and paths of an instance follow from its settings."""

from __future__ import annotations

import pytest

from virt_local.up.instance import Instance, SettingsError, make_instance
from virt_local.up.isolation import BRIDGE_GROUP
from virt_local.up.links import Address, Bridge, Route, Veth
from virt_local.up.network import host_layout, nft_script, node_layout, node_script


def test_the_default_instance() -> None:
    instance = make_instance()
    (node,) = instance.nodes
    assert (instance.bridge, instance.bridge_address, instance.server) == (
        "vp-br0",
        "10.244.0.1",
        "https://127.0.0.1:7443",
    )
    assert (instance.api_port, instance.controller_health_port) == (8443, 8182)
    assert instance.automation_address == "127.0.0.1:8444"
    assert (node.netns, node.address) == ("vp-node1", "10.244.0.11")
    assert (node.pod_cidr, node.pod_cidr_v6) == ("10.244.101.0/24", "fd00:10:244:101::/64")
    assert str(instance.data_dir) == "/var/lib/virtpod"


def test_two_instances_share_nothing() -> None:
    one, other = make_instance("one"), make_instance("other")
    for fact in ("bridge", "nft_table", "network", "data_dir"):
        assert getattr(one, fact) != getattr(other, fact)
    assert one.nodes[0].netns != other.nodes[0].netns


def test_link_names_fit_the_kernel() -> None:
    instance = make_instance("a234567", nodes=99)
    assert max(len(name) for name in (instance.bridge, instance.nodes[-1].veth)) <= 15


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"name": "Bad_Name"}, "instance name"),
        ({"name": "toolongname"}, "instance name"),
        ({"nodes": 0}, "--nodes 0"),
        ({"nodes": 100}, "--nodes 100"),
        ({"port": 65000}, "--port 65000"),
        ({"network": "10.1.0.0/24"}, "a /16 is needed"),
        ({"network": "nonsense"}, "--network-cidr"),
    ],
)
def test_settings_that_cannot_work_are_named(settings: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        make_instance(**settings)  # type: ignore[arg-type]


def two_nodes() -> Instance:
    return make_instance("t", nodes=2, network="10.9.0.0/16")


def test_every_node_hangs_on_the_bridge_and_the_host_knows_its_pods() -> None:
    layout = host_layout(two_nodes())
    assert layout.bridges == (Bridge("t-br0", group=BRIDGE_GROUP),)
    assert Veth("t-n2", "eth0", "t-node2", "t-br0") in layout.veths
    assert Address("t-br0", "10.9.0.1/24") in layout.addresses
    assert Route("10.9.102.0/24", "10.9.0.12", "t-br0") in layout.routes
    assert Route("fd00:10:9:102::/64", "fd00:10:9::12", "t-br0") in layout.routes


def test_a_node_knows_the_pods_of_the_others_and_the_way_out() -> None:
    instance = two_nodes()
    layout = node_layout(instance, instance.nodes[0])
    assert Route("10.9.102.0/24", "10.9.0.12", "eth0") in layout.routes
    assert not any("10.9.101." in route.destination for route in layout.routes)
    assert {Route("0.0.0.0/0", "10.9.0.1", "eth0"), Route("::/0", "fd00:10:9::1", "eth0")} <= set(layout.routes)
    assert set(layout.up) == {"lo", "eth0", "t-cni0"}


def test_the_bridge_of_the_pods_keeps_its_address() -> None:
    """Guests remember it."""
    instance = two_nodes()
    (bridge,) = node_layout(instance, instance.nodes[0]).bridges
    assert bridge.mac.startswith("02:")
    assert len(bridge.mac) == 17


def test_a_machine_without_ipv6() -> None:
    instance = two_nodes()
    layouts = host_layout(instance, ipv6=False), node_layout(instance, instance.nodes[0], ipv6=False)
    assert "fd00" not in repr(layouts)
    assert "ip6" not in nft_script(instance, ipv6=False)


def test_only_traffic_that_leaves_is_masqueraded() -> None:
    script = nft_script(two_nodes())
    assert 'ip saddr 10.9.0.0/16 ip daddr != 10.9.0.0/16 oifname != "t-br0" masquerade' in script
    assert 'ip6 saddr fd00:10:9::/48 ip6 daddr != fd00:10:9::/48 oifname != "t-br0" masquerade' in script
    for family in ("ip", "ip6"):
        assert script.index(f"delete table {family} virtpod_t") > script.index(f"add table {family} virtpod_t")


def test_the_machine_is_closed_to_pods_unless_somebody_opens_it() -> None:
    script = nft_script(two_nodes())
    assert 'iifname "t-br0" ip saddr != 10.9.0.0/24 goto from_pods' in script
    assert 'iifname "t-br0" ip6 saddr != fd00:10:9::/64 goto from_pods' in script
    assert f'oifname "t-br0" iifname != "t-br0" meta iifgroup {BRIDGE_GROUP}' in script
    opened = nft_script(make_instance("t", nodes=2, network="10.9.0.0/16", guests_reach_host=True))
    assert "drop" not in opened
    assert "masquerade" in opened


def test_a_node_is_closed_to_all_pods_and_lets_its_own_pass_under_their_addresses() -> None:
    instance = two_nodes()
    script = node_script(instance, instance.nodes[1])
    assert 'iifname "t-cni0" ip saddr != 10.9.102.0/24 counter drop' in script
    assert 'iifname "t-cni0" ip6 saddr != fd00:10:9:102::/64 counter drop' in script
    assert "ip saddr { 10.9.101.0/24, 10.9.102.0/24 } goto from_pods" in script
    assert "ip6" not in node_script(instance, instance.nodes[1], ipv6=False)
