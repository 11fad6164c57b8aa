"""Links, addresses and routes in a real kernel, in a namespace of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from virt_local.up import links
from virt_local.up.errors import NetworkError
from virt_local.up.links import Address, Bridge, Layout, Route, Veth

pytestmark = pytest.mark.root


@pytest.fixture
def spaces() -> Iterator[tuple[str, str]]:
    """Two namespaces: one plays the host, one the node."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    tag = uuid.uuid4().hex[:6]
    made = (f"lt{tag}-host", f"lt{tag}-node")
    for name in made:
        links.ensure_namespace(name)
    yield made
    for name in made:
        links.remove_namespace(name)
    assert not set(made) & links.namespaces()


def layout(node: str) -> Layout:
    return Layout(
        bridges=(Bridge("br0", "02:00:00:00:00:07"),),
        veths=(Veth("n1", "eth0", node, "br0"),),
        addresses=(Address("br0", "10.9.0.1/24"), Address("br0", "fd00:10:9::1/64")),
        up=("lo", "br0"),
        routes=(
            Route("10.9.101.0/24", "10.9.0.11", "br0"),
            Route("fd00:10:9:101::/64", "fd00:10:9::11", "br0"),
            Route("0.0.0.0/0", "10.9.0.254", "br0"),
            Route("::/0", "fd00:10:9::fe", "br0"),
        ),
    )


def inside(name: str, body: Callable[[], Any]) -> Any:
    return links.in_namespace(name, lambda: [body()])[0]


def show(name: str, *words: str) -> list[dict[str, Any]]:
    done = subprocess.run(["ip", "-n", name, "-j", *words], capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return found


def facts(name: str) -> tuple[Any, Any]:
    indexes = sorted((link["ifname"], link["ifindex"], link.get("address")) for link in show(name, "link"))
    routes = [sorted((r["dst"], r.get("gateway", "")) for r in show(name, family, "route")) for family in ("-4", "-6")]
    return indexes, routes


def test_a_layout_is_made_whole_and_a_second_time_changes_nothing(spaces: tuple[str, str]) -> None:
    host, node = spaces
    inside(host, lambda: links.establish(layout(node)))
    before = facts(host)
    assert {name for name, _, _ in before[0]} == {"lo", "br0", "n1"}
    assert ("default", "10.9.0.254") in before[1][0]
    assert ("10.9.101.0/24", "10.9.0.11") in before[1][0]
    assert {("default", "fd00:10:9::fe"), ("fd00:10:9:101::/64", "fd00:10:9::11")} <= set(before[1][1])
    (bridge,) = show(host, "addr", "show", "dev", "br0")
    assert bridge["address"] == "02:00:00:00:00:07"
    addresses = {each["local"]: each for each in bridge["addr_info"]}
    assert {"10.9.0.1", "fd00:10:9::1"} <= set(addresses)
    assert not addresses["fd00:10:9::1"].get("tentative")
    (port,) = show(host, "link", "show", "dev", "n1")
    assert port["master"] == "br0"
    assert [link["ifname"] for link in show(node, "link")] == ["lo", "eth0"]
    inside(host, lambda: links.establish(layout(node)))
    assert facts(host) == before


def test_the_routes_are_told_with_their_links(spaces: tuple[str, str]) -> None:
    host, node = spaces
    inside(host, lambda: links.establish(layout(node)))
    assert sorted(inside(host, links.routes)) == [("br0", "10.9.0.0/24"), ("br0", "10.9.101.0/24")]


def test_a_pair_whose_other_end_is_elsewhere_is_made_anew(spaces: tuple[str, str]) -> None:
    """The namespace lost its name, but a process still holds it."""
    host, node = spaces
    inside(host, lambda: links.establish(layout(node)))
    holder = os.open(links.NETNS_DIR / node, os.O_RDONLY)
    try:
        links.remove_namespace(node)
        links.ensure_namespace(node)
        inside(host, lambda: links.establish(layout(node)))
    finally:
        os.close(holder)
    assert [link["ifname"] for link in show(node, "link")] == ["lo", "eth0"]


def test_removing_is_fine_twice(spaces: tuple[str, str]) -> None:
    host, node = spaces
    inside(host, lambda: links.establish(layout(node)))
    assert inside(host, lambda: links.remove("br0")) is True
    assert inside(host, lambda: links.remove("br0")) is False
    links.remove_namespace("never-made")


def test_a_name_without_a_namespace_is_repaired(spaces: tuple[str, str]) -> None:
    """What a reboot leaves where /run is no tmpfs."""
    _, node = spaces
    links.remove_namespace(node)
    (links.NETNS_DIR / node).touch()
    links.ensure_namespace(node)
    assert "lo" in links.in_namespace(node, links.names)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (Layout(up=("nosuch0",)), "the link nosuch0 cannot be brought up: no interface"),
        (Layout(addresses=(Address("nosuch0", "10.9.0.1/24"),)), "the address 10.9.0.1/24 .* the link nosuch0"),
        (Layout(routes=(Route("10.9.9.0/24", "10.9.0.77", "lo"),)), "the route to 10.9.9.0/24 by 10.9.0.77 .* link lo"),
        (Layout(bridges=(Bridge("a-name-that-is-too-long"),)), "the bridge a-name-that-is-too-long cannot be made"),
    ],
)
def test_a_failure_names_the_link(spaces: tuple[str, str], wrong: Layout, told: str) -> None:
    with pytest.raises(NetworkError, match=told):
        inside(spaces[0], lambda: links.establish(wrong))
