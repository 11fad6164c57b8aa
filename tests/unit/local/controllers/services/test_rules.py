"""The tables of Services as text; `nft` itself says whether it understands them, where it is there."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.services import EndpointSlice, Service
from virt_local.controllers.services.frontends import Backend, Frontend, frontends, headless, slices_by_service
from virt_local.controllers.services.proxy import sites
from virt_local.controllers.services.records import hosts, ports
from virt_local.controllers.services.rules import PLACES, Place, render, shares
from virt_local.up.instance import make_instance
from virt_local.up.network import dns_script

PODS = (ipaddress.ip_network("10.1.101.0/24"), ipaddress.ip_network("fd00:10:1:101::/64"))
HOST = Place("t", "ip", "10.1.224.0/20", closed_to="br0")
NODE = Place("t", "ip", "10.1.224.0/20", "node1", "10.1.101.0/24")


def service(name: str = "web", **spec: Any) -> Service:
    wanted = {
        "type": "NodePort",
        "clusterIP": "10.1.230.1",
        "clusterIPs": ["10.1.230.1"],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}],
        **spec,
    }
    return from_plain({"metadata": {"name": name, "namespace": "n"}, "spec": wanted}, Service)


def piece(*ends: dict[str, Any], kind: str = "IPv4", of: str = "web", number: int = 8080) -> EndpointSlice:
    meta = {"name": of, "namespace": "n", "labels": {"kubernetes.io/service-name": of}}
    plain = {
        "addressType": kind,
        "ports": [{"name": "http", "port": number, "protocol": "TCP"}],
        "endpoints": list(ends),
    }
    return from_plain({"metadata": meta, **plain}, EndpointSlice)


def end(address: str, node: str = "node1", **more: Any) -> dict[str, Any]:
    return {"addresses": [address], "nodeName": node, **more}


def fronts(one: Service, *pieces: EndpointSlice) -> list[Frontend]:
    return frontends([one], slices_by_service(pieces), PODS)


def test_only_ready_pods_of_the_instance_count() -> None:
    ends = (
        end("10.1.101.2"), end("10.1.101.3", conditions={"ready": False}), end("127.0.0.1"), end("10.1.0.1"),
        end("192.168.1.1"),
    )  # fmt: skip
    (found,) = fronts(service(), piece(*ends))
    assert found.backends == (Backend("10.1.101.2", 8080, "node1"),)


def test_the_machine_and_a_node_lead_to_the_pods() -> None:
    found = fronts(service(), piece(end("10.1.101.2"), end("10.1.101.3", "node2")))
    text = render(HOST, found)
    assert text.startswith("add table ip t\ndelete table ip t\ntable ip t {\n"), "one transaction"
    assert "10.1.230.1 . tcp . 80 : goto to_" in text
    assert "tcp . 30080 : goto to_" in text
    assert "numgen random mod 2 map { 0 : 10.1.101.2 . 8080, 1 : 10.1.101.3 . 8080 }" in text
    assert 'iifname "br0" return' in text
    assert "masquerade" not in text, "the machine keeps the client's address"
    assert render(NODE, found).count("masquerade") == 2


def test_local_policies_keep_to_the_node() -> None:
    ends = piece(end("10.1.101.2"), end("10.1.101.3", "node2"))
    found = fronts(service(internalTrafficPolicy="Local", externalTrafficPolicy="Local"), ends)
    assert "10.1.101.3" not in render(NODE, found)
    assert "10.1.101.3" in render(HOST, found), "the machine is every node"


def test_without_endpoints_there_is_only_the_refusal() -> None:
    text = render(NODE, fronts(service()))
    assert "10.1.230.1" not in text
    assert "ip daddr 10.1.224.0/20 meta l4proto tcp reject with tcp reset" in text


def test_a_client_keeps_its_pod_while_others_go() -> None:
    three = tuple(Backend(f"10.1.101.{index}", 8080) for index in (2, 3, 4))
    before, after = shares(three), shares(three[:2])
    assert len(before) == PLACES
    assert set(before) == set(three)
    assert all(now == was for was, now in zip(before, after, strict=True) if was != three[2])


def test_the_ports_of_a_service_in_both_families() -> None:
    both = service(clusterIPs=["10.1.230.1", "fd00:10:1:ffff::5"])
    found = fronts(both, piece(end("10.1.101.2")), piece(end("fd00:10:1:101::2"), kind="IPv6"))
    assert [(each.family, each.backends[0].address) for each in found] == [
        ("ip", "10.1.101.2"),
        ("ip6", "fd00:10:1:101::2"),
    ]


def test_names() -> None:
    bare = service("bare", clusterIP="None", clusterIPs=["None"], type="ClusterIP")
    pieces = slices_by_service([piece(end("10.1.101.2"), end("10.1.101.4", hostname="own"), of="bare"), piece()])
    services = [service(), bare]
    fronted, unfronted = frontends(services, pieces, PODS), headless(services, pieces, PODS)
    assert hosts(fronted, unfronted).splitlines() == [
        "10.1.230.1 web.n.svc.cluster.local",
        "10.1.101.4 own.bare.n.svc.cluster.local",
        "10.1.101.2 bare.n.svc.cluster.local",
        "10.1.101.4 bare.n.svc.cluster.local",
    ]
    assert ports(fronted, unfronted).splitlines() == [
        "srv-host=_http._tcp.bare.n.svc.cluster.local,bare.n.svc.cluster.local,8080",
        "srv-host=_http._tcp.web.n.svc.cluster.local,web.n.svc.cluster.local,80",
    ]


@pytest.mark.parametrize("name", ["a\nserver=/#/1.2.3.4", "a,b", "-a", "a b", ""])
def test_what_is_no_name_is_left_out(name: str) -> None:
    odd = Frontend(f"n/{name}", name, "ip", "10.1.230.9", "tcp", 80)
    assert hosts([odd], []) == ""
    assert ports([odd], []) == ""


@pytest.mark.skipif(shutil.which("nft") is None, reason="needs nft")
def test_nft_understands_all_of_it() -> None:
    instance = make_instance("ttt", "/nowhere", nodes=2, network="10.1.0.0/16")
    both = service(clusterIPs=["10.1.230.1", "fd00:10:1:ffff::5"], sessionAffinity="ClientIP")
    found = fronts(both, piece(end("10.1.101.2")), piece(end("fd00:10:1:101::2"), kind="IPv6"))
    found += fronts(service("more", clusterIPs=["10.1.230.2"]), piece(end("10.1.101.2"), of="more"))
    places = [place for site in sites(instance, ipv6=True) for place in site.places]
    for text in (*(render(place, found) for place in places), dns_script(instance)):
        done = subprocess.run(["nft", "-c", "-f", "-"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "Operation not permitted" in done.stderr, done.stderr
