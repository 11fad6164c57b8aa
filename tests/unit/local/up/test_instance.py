"""Names, addresses and paths of an instance follow from its settings."""

from __future__ import annotations

import pytest

from virt_local.up.instance import Instance, SettingsError, make_instance
from virt_local.up.network import Observed, nft_script, plan_network


def test_the_default_instance() -> None:
    instance = make_instance()
    (node,) = instance.nodes
    assert (instance.bridge, instance.bridge_address, instance.server) == (
        "vp-br0",
        "10.244.0.1",
        "https://127.0.0.1:7443",
    )
    assert (instance.api_port, instance.controller_health_port) == (8443, 8182)
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


def test_a_fresh_network_is_made_whole() -> None:
    plan = plan_network(two_nodes(), Observed())
    assert "link add name t-br0 type bridge" in plan.host
    assert "link add name t-n2 type veth peer name eth0 netns t-node2" in plan.host
    assert "route replace 10.9.102.0/24 via 10.9.0.12 dev t-br0" in plan.host
    assert "route replace 10.9.102.0/24 via 10.9.0.12 dev eth0" in plan.inside["t-node1"]
    assert not any("10.9.101.0" in line for line in plan.inside["t-node1"])


def test_what_stands_is_not_made_again() -> None:
    """Pods are connected through it."""
    links, spaces = frozenset(("t-br0", "t-n1", "t-n2")), frozenset(("t-node1", "t-node2"))
    plan = plan_network(two_nodes(), Observed(links, spaces))
    assert not any(" add " in line or " del " in line for line in plan.host)


def test_a_link_whose_namespace_was_lost_is_replaced() -> None:
    plan = plan_network(two_nodes(), Observed(frozenset(("t-br0", "t-n1")), frozenset()))
    assert plan.host.index("link del t-n1") < plan.host.index(
        "link add name t-n1 type veth peer name eth0 netns t-node1"
    )


def test_only_traffic_that_leaves_is_masqueraded() -> None:
    script = nft_script(two_nodes())
    assert 'ip saddr 10.9.0.0/16 ip daddr != 10.9.0.0/16 oifname != "t-br0" masquerade' in script
    assert script.index("delete table ip virtpod_t") > script.index("add table ip virtpod_t")
