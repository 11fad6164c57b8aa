"""Which endpoints a Service has."""

from __future__ import annotations

from typing import Any

from virt_core.apis.base import from_plain
from virt_core.apis.pods import Pod
from virt_core.apis.services import Service
from virt_local.controllers.services.slices import chooses, facts, slices_of


def service(**spec: Any) -> Service:
    wanted = {"selector": {"app": "web"}, "ipFamilies": ["IPv4"], "ports": [{"port": 80, "protocol": "TCP"}], **spec}
    return from_plain({"metadata": {"name": "web", "namespace": "n", "uid": "u"}, "spec": wanted}, Service)


def pod(name: str, *, ready: bool = True, ips: tuple[str, ...] = ("10.1.1.2", "fd00::2"), **parts: Any) -> Pod:
    meta = {"name": name, "namespace": "n", "uid": name, "labels": {"app": "web"}, **parts.pop("meta", {})}
    status = {
        "phase": "Running",
        "podIPs": [{"ip": ip} for ip in ips],
        "conditions": [{"type": "Ready", "status": str(ready)}],
        **parts.pop("status", {}),
    }
    spec = {"nodeName": "node1", "containers": [{"name": "c", "ports": parts.pop("ports", [])}], **parts}
    return from_plain({"metadata": meta, "spec": spec, "status": status}, Pod)


def addresses(found: Service, *pods: Pod) -> list[list[str]]:
    return [[end.addresses[0] for end in piece.endpoints] for piece in slices_of(found, pods)]


def test_a_selector_chooses_by_all_its_labels_in_its_namespace() -> None:
    assert chooses(service(), pod("a"))
    assert not chooses(service(selector={"app": "web", "tier": "x"}), pod("a"))
    assert not chooses(service(), pod("a", meta={"namespace": "other"}))
    assert not chooses(service(selector={}), pod("a")), "none is not all"


def test_nobody_is_an_empty_slice() -> None:
    (piece,) = slices_of(service(), [])
    assert (piece.endpoints, piece.address_type) == ([], "IPv4")
    assert piece.metadata.labels["kubernetes.io/service-name"] == "web"
    assert piece.metadata.owner_references[0].uid == "u"


def test_what_has_ended_or_has_no_address_does_not_count() -> None:
    ended = pod("ended", status={"phase": "Succeeded"})
    assert addresses(service(), ended, pod("none", ips=()), pod("a")) == [["10.1.1.2"]]


def test_readiness_and_going() -> None:
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    pods = [pod("a"), pod("b", ready=False), pod("c", meta=going)]
    (piece,) = slices_of(service(), pods)
    shown = [
        (end.conditions.ready, end.conditions.serving, end.conditions.terminating)
        for end in piece.endpoints
        if end.conditions
    ]
    assert shown == [(True, True, False), (False, False, False), (False, True, True)]
    (piece,) = slices_of(service(publishNotReadyAddresses=True), pods)
    assert [end.conditions.ready for end in piece.endpoints if end.conditions] == [True, True, True]


def test_each_family_has_slices_of_its_own() -> None:
    found = slices_of(service(ipFamilies=["IPv4", "IPv6"]), [pod("a"), pod("b", ips=("10.1.1.3",))])
    assert [(p.address_type, [e.addresses[0] for e in p.endpoints]) for p in found] == [
        ("IPv4", ["10.1.1.2", "10.1.1.3"]),
        ("IPv6", ["fd00::2"]),
    ]


def test_named_ports_are_looked_up_in_each_pod() -> None:
    wanted = service(ports=[{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"}])
    one = pod("a", ports=[{"name": "web", "containerPort": 8080, "protocol": "TCP"}])
    two = pod("b", ports=[{"name": "web", "containerPort": 9090, "protocol": "TCP"}])
    none = pod("c", ports=[{"name": "web", "containerPort": 53, "protocol": "UDP"}])
    found = slices_of(wanted, [one, two, none])
    assert [[port.port for port in piece.ports] for piece in found] == [[8080], [9090], []]
    assert len({piece.metadata.name for piece in found}) == 3


def test_many_pods_are_many_slices_and_names_stay() -> None:
    pods = [pod(f"p{index:03}", ips=(f"10.1.{index // 200}.{index % 200 + 1}",)) for index in range(250)]
    found = slices_of(service(), pods)
    assert [len(piece.endpoints) for piece in found] == [100, 100, 50]
    assert [p.metadata.name for p in found] == [p.metadata.name for p in slices_of(service(), reversed(pods))]


def test_a_hostname_is_for_the_service_that_is_its_subdomain() -> None:
    inside, outside = pod("a", hostname="own", subdomain="web"), pod("b", hostname="own", subdomain="other")
    (piece,) = slices_of(service(clusterIP="None"), [inside, outside])
    assert [end.hostname for end in piece.endpoints] == ["own", None]
    assert "service.kubernetes.io/headless" in piece.metadata.labels


def test_only_what_endpoints_show_is_a_change() -> None:
    assert facts(pod("a")) == facts(pod("a", meta={"annotations": {"x": "y"}}))
    assert facts(pod("a")) != facts(pod("a", ready=False))
