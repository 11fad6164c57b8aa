"""The controllers behind Services: slices at a fake API server, tables and a name server that are only recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_core.apis.pods import Pod
from virt_core.apis.services import EndpointSlice, Service
from virt_core.kube.informer import Informer
from virt_local.controllers.services import names as names_module
from virt_local.controllers.services import proxy as proxy_module
from virt_local.controllers.services.dnsmasq import Server
from virt_local.controllers.services.endpoints import Endpoints
from virt_local.controllers.services.names import Names
from virt_local.controllers.services.proxy import Proxy
from virt_local.up.errors import NetworkError
from virt_local.up.instance import Instance, make_instance

SERVICE = "/api/v1/namespaces/n/services/web"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices/"
INSTANCE = make_instance("ttt", "/nowhere", nodes=2, network="10.1.0.0/16")


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as made:
        yield made


def service(**spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]
    address = {"clusterIP": "10.1.230.1", "clusterIPs": ["10.1.230.1"], "ipFamilies": ["IPv4"]}
    wanted = {"selector": {"app": "web"}, "ports": ports, **address, **spec}
    return {"metadata": {"name": "web", "namespace": "n", "uid": "u"}, "spec": wanted}


def pod(kube: FakeKube, name: str, address: str, *, ready: bool = True, app: str = "web") -> None:
    status = {"phase": "Running", "podIPs": [{"ip": address}], "conditions": [{"type": "Ready", "status": str(ready)}]}
    meta = {"name": name, "namespace": "n", "uid": name, "labels": {"app": app}}
    spec = {"nodeName": "node1", "containers": [{"name": "c"}]}
    kube.put(f"/api/v1/namespaces/n/pods/{name}", {"metadata": meta, "spec": spec, "status": status})


def slices(kube: FakeKube) -> list[Any]:
    return [obj for path, obj in kube.objects.items() if path.startswith(SLICES)]


def ready(kube: FakeKube) -> list[str]:
    ends = [end for piece in slices(kube) for end in piece.get("endpoints") or []]
    return sorted(end["addresses"][0] for end in ends if end["conditions"]["ready"])


@contextmanager
def following(kube: FakeKube) -> Iterator[None]:
    client = kube.client()
    services, pods, pieces = Informer(client, Service), Informer(client, Pod), Informer(client, EndpointSlice)
    controller = Endpoints(client, services, pods, pieces).controller()
    with running(services.run, pods.run, pieces.run, controller.run):
        yield


def test_slices_follow_the_pods(kube: FakeKube) -> None:
    kube.put(SERVICE, service())
    pod(kube, "a", "10.1.101.2")
    pod(kube, "other", "10.1.101.9", app="other")
    with following(kube):
        eventually(lambda: ready(kube) == ["10.1.101.2"])
        pod(kube, "b", "10.1.101.3")
        eventually(lambda: ready(kube) == ["10.1.101.2", "10.1.101.3"])
        pod(kube, "a", "10.1.101.2", ready=False)
        eventually(lambda: ready(kube) == ["10.1.101.3"])
        kube.remove("/api/v1/namespaces/n/pods/b")
        eventually(lambda: ready(kube) == [])
        kube.put(SERVICE, service(selector={"app": "other"}))
        eventually(lambda: ready(kube) == ["10.1.101.9"])


def test_a_slice_that_somebody_removes_or_spoils_comes_back(kube: FakeKube) -> None:
    kube.put(SERVICE, service())
    pod(kube, "a", "10.1.101.2")
    with following(kube):
        eventually(lambda: ready(kube) == ["10.1.101.2"])
        (piece,) = slices(kube)
        kube.put(SLICES + piece["metadata"]["name"], {**piece, "endpoints": []})
        eventually(lambda: ready(kube) == ["10.1.101.2"])
        kube.remove(SLICES + piece["metadata"]["name"])
        eventually(lambda: ready(kube) == ["10.1.101.2"])


def hand_written(kube: FakeKube, *addresses: str) -> None:
    ends = [{"addresses": [address], "nodeName": "node1"} for address in addresses]
    meta = {"name": "by-hand", "namespace": "n", "labels": {"kubernetes.io/service-name": "web"}}
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}]
    kube.put(SLICES + "by-hand", {"metadata": meta, "addressType": "IPv4", "ports": ports, "endpoints": ends})


def test_each_place_is_loaded_once_for_each_change(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[tuple[str, str]] = []
    failures = [NetworkError("busy")]

    def load(netns: str, script: str) -> None:
        if failures:
            raise failures.pop()
        loads.append((netns, script))

    monkeypatch.setattr(proxy_module, "load", load)
    client = kube.client()
    services, pieces = Informer(client, Service), Informer(client, EndpointSlice)
    proxy = Proxy(services, pieces, INSTANCE, ipv6=False)
    with running(services.run, pieces.run, proxy.controller().run):
        eventually(lambda: [netns for netns, _ in loads] == ["", "/run/netns/ttt-node1", "/run/netns/ttt-node2"])
        assert "10.1.230.1" not in loads[0][1]
        kube.put(SERVICE, service())
        hand_written(kube, "10.1.101.2", "10.1.0.1")
        eventually(lambda: "0 : 10.1.101.2 . 8080" in loads[-1][1] and loads[-1][0].endswith("node2"))
        assert "10.1.0.1 ." not in loads[-1][1]
        before = len(loads)
        proxy.reconcile("all")
        assert len(loads) == before, "nothing has changed"


class Recorded:
    """A name server that is only asked to do things."""

    def __init__(self, _server: Server, on_end: Any) -> None:
        self.on_end = on_end
        self.said: list[str] = []
        self.runs = False

    def ensure(self) -> bool:
        started, self.runs = not self.runs, True
        if started:
            self.said.append("start")
        return started

    def read_again(self) -> None:
        self.said.append("read")

    def stop(self) -> None:
        self.runs = False


def test_addresses_are_read_again_and_ports_need_a_start(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(names_module, "Process", Recorded)
    monkeypatch.setattr(names_module.os, "chown", lambda *_: None)
    monkeypatch.setattr(Instance, "dns_dir", property(lambda _: tmp_path / "dns"))
    client = kube.client()
    services, pieces = Informer(client, Service), Informer(client, EndpointSlice)
    keeper = Names(services, pieces, INSTANCE, ipv6=False)
    process: Any = keeper._process
    with running(services.run, pieces.run):
        eventually(lambda: services.has_synced() and pieces.has_synced())
        keeper.reconcile("all")
        assert process.said == ["read", "start"]
        kube.put(SERVICE, service())
        eventually(services.list)
        later = keeper.reconcile("all")
        assert "10.1.230.1 web.n.svc.cluster.local\n" in (tmp_path / "dns" / "hosts").read_text()
        assert process.said == ["read", "start", "read"], "one start in two seconds, however many Services come"
        assert later is not None
        assert 0 < later.requeue_after_s <= 2
        keeper._started -= 2
        assert keeper.reconcile("all") is None
        assert process.said[-1] == "start"
        assert "srv-host=_http._tcp.web.n" in (tmp_path / "dns" / "ports.conf").read_text()
        assert (tmp_path / "dns").stat().st_mode & 0o007 == 0
