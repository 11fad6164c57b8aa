"""The node service of a node whose certificate is still to come."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.certs import CertAuthority
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_controller.certificates.controller import KEY, CertificateController
from virt_controller.certificates.model import Policy
from virt_controller.certificates.signer import NodeSigner
from virt_core.apis import names
from virt_core.rpc.channel import tls_channel
from virt_core.rpc.handshake import PROTOCOL_VERSIONS
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.certfacts import Facts
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.keypair import read_facts
from virt_core.runtime.swap import write_files
from virt_handler.loop.roster import Sessions
from virt_handler.pods.files import PodFiles
from virt_handler.service.node_server import NodeServer, certificates, given_certificates
from virt_handler.service.node_service import NodeServicer
from virt_protos.node.v1 import node_pb2, node_pb2_grpc

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SHARED = "/api/v1/namespaces/prod/configmaps/virtpod-ca-bundle"
API, NODE = names.tls_name_api("prod"), names.tls_name_node("node1", "prod")
LIFE = timedelta(hours=3)


class Cluster:
    """An API server that knows who asks, and virt-controller's part beside it."""

    def __init__(self, kube: FakeKube, clock: FakeClock, directory: Path, token_node: str = "node1") -> None:
        self.kube, self.clock, self.directory, self.token_node = kube, clock, directory, token_node
        policy = Policy(10 * LIFE, LIFE)
        self.authorities = CertificateController(kube.client(), "prod", policy, clock, serving=False)
        self.signer = NodeSigner(kube.client(), "prod", policy, clock)
        kube.on_request = self._who

    def _who(self, method: str, path: str, _query: dict[str, str], body: Any) -> None:
        if method == "POST" and path == REQUESTS:
            body["spec"]["username"] = names.service_account_user(names.SA_HANDLER, "prod")
            body["spec"]["extra"] = {names.EXTRA_NODE_NAME: [self.token_node]}

    def bodies(self) -> list[Callable[[threading.Event], None]]:
        self.authorities.reconcile(KEY)
        return [self.signer.informer.run, self.signer.run]

    def rotate(self) -> None:
        """Until another CA signs."""
        before = self.kube.objects[SHARED]["data"]["signer.crt"]
        while self.kube.objects[SHARED]["data"]["signer.crt"] == before:
            self.clock.step(600)
            self.authorities.reconcile(KEY)

    def virt_api(self) -> TlsFiles:
        secret = self.kube.objects["/api/v1/namespaces/prod/secrets/virt-api-client"]["data"]
        write_files(self.directory / "api", {name: base64.b64decode(data) for name, data in secret.items()})
        return TlsFiles(self.directory / "api")


def hello(port: int, tls: TlsFiles, node: str = NODE) -> str:
    with tls_channel(f"127.0.0.1:{port}", tls, server_name=node) as channel:
        request = node_pb2.HelloRequest(versions=PROTOCOL_VERSIONS)
        return str(node_pb2_grpc.NodeStub(channel).Hello(request, timeout=5).node_name)  # type: ignore[no-untyped-call]


class Handler:
    """The node service as virt-handler puts it together."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.refusals: list[str] = []
        client, tell = cluster.kube.client(), self.refusals.append
        self.found = certificates(client, "prod", "node1", str(directory / "tls"), cluster.clock, tell)
        make = lambda tls: NodeServicer("node1", Sessions(), PodFiles(str(directory)), tls=tls)  # noqa: E731
        self.server = NodeServer("127.0.0.1:0", self.found, make, API)
        assert self.found.own is not None
        self.own = self.found.own

    def bodies(self) -> list[Callable[[threading.Event], None]]:
        return [self.own.watch, self.own.run, self.server.run]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with fake_kube() as kube:
        yield Cluster(kube, FakeClock(datetime.now(UTC)), tmp_path)


def test_it_says_what_it_waits_for_then_serves_and_follows(cluster: Cluster, tmp_path: Path) -> None:
    """The roles are those of the namespace that we are installed in."""
    handler = Handler(cluster, tmp_path)
    with running(*handler.bodies()):
        leader = "virt-controller's leader"
        assert (
            handler.server.ready()
            == f"waiting for ConfigMap prod/virtpod-ca-bundle, in which {leader} says whom to trust"
        )
        with running(*cluster.bodies()):
            eventually(lambda: asked(cluster, handler))
            port, client = handler.server.port, cluster.virt_api()
            assert hello(port, client) == "node1"
            stranger = CertAuthority().issue("virt-api", API).write(tmp_path / "stranger")
            assert not answers(port, TlsFiles(stranger))
            with pytest.raises(grpc.RpcError):
                hello(port, client, names.tls_name_node("node2", "prod"))


def asked(cluster: Cluster, handler: Handler) -> bool:
    """Its own clock stands still, and with it the time between two looks."""
    cluster.clock.step(0.5)
    return handler.server.ready() is None


def shown(directory: Path) -> Facts:
    return read_facts((directory / "tls" / "tls.crt").read_bytes())


def test_a_new_ca_gets_a_new_certificate_at_once(tmp_path: Path) -> None:
    """The old one is trusted for a while yet, and then by nobody. TLS knows real time only, so it ends about now."""
    with fake_kube() as kube:
        cluster = Cluster(kube, FakeClock(datetime.now(UTC) - timedelta(hours=22)), tmp_path)
        handler = Handler(cluster, tmp_path)
        with running(*handler.bodies(), *cluster.bodies()):
            eventually(lambda: asked(cluster, handler))
            first = shown(tmp_path)
            cluster.rotate()
            signer = read_facts(kube.objects[SHARED]["data"]["signer.crt"].encode())
            assert signer.subject != first.issuer
            eventually(lambda: asked(cluster, handler) and shown(tmp_path).issuer == signer.subject, within_s=20)
            eventually(lambda: answers(handler.server.port, cluster.virt_api()), within_s=20)


def test_the_key_stays_on_the_node_and_is_its_owners_only(cluster: Cluster, tmp_path: Path) -> None:
    handler = Handler(cluster, tmp_path)
    with running(*handler.bodies(), *cluster.bodies()):
        eventually(lambda: asked(cluster, handler))
    key = (tmp_path / "tls" / "tls.key").read_bytes()
    assert b"PRIVATE KEY" in key
    assert (tmp_path / "tls" / "tls.key").stat().st_mode & 0o777 == 0o600
    sent = "".join(json.dumps(body) for _, _, _, body in cluster.kube.requests)
    body = key.decode().split("-----")[2].split()
    assert not [line for line in (*body, base64.b64encode(key).decode()) if line in sent]


def test_it_is_renewed_in_time_and_by_the_same_ca(cluster: Cluster, tmp_path: Path) -> None:
    handler = Handler(cluster, tmp_path)
    with running(*handler.bodies(), *cluster.bodies()):
        eventually(lambda: asked(cluster, handler))
        first = shown(tmp_path)
        requests = lambda: len([p for p in cluster.kube.objects if p.startswith(REQUESTS)])  # noqa: E731
        cluster.clock.step(LIFE.total_seconds() / 2)
        handler.own.queue.add("certificate")
        assert requests() == 1
        cluster.clock.step(LIFE.total_seconds() / 4)
        eventually(lambda: asked(cluster, handler) and shown(tmp_path).ends > first.ends, within_s=20)
        assert shown(tmp_path).issuer == first.issuer
        assert requests() == 2


def test_a_restart_goes_on_with_what_is_there(cluster: Cluster, tmp_path: Path) -> None:
    handler = Handler(cluster, tmp_path)
    with running(*handler.bodies(), *cluster.bodies()):
        eventually(lambda: asked(cluster, handler))
    first, again = shown(tmp_path), Handler(cluster, tmp_path)
    with running(*again.bodies()):
        eventually(lambda: answers(again.server.port, cluster.virt_api()))
    assert shown(tmp_path) == first
    assert len([path for path in cluster.kube.objects if path.startswith(REQUESTS)]) == 1


def test_a_node_that_asks_with_the_token_of_another_is_told_why(tmp_path: Path) -> None:
    with fake_kube() as kube:
        cluster = Cluster(kube, FakeClock(datetime.now(UTC)), tmp_path, token_node="node2")
        handler = Handler(cluster, tmp_path)
        with running(*handler.bodies(), *cluster.bodies()):
            eventually(lambda: asked(cluster, handler) or handler.refusals)
            told = str(handler.server.ready())
        assert "was refused: virt-handler of node node2 may ask for node2.virt-handler.prod.internal only" in told
        assert handler.refusals[0] == told
        assert not (tmp_path / "tls" / "tls.crt").exists()


def answers(port: int, tls: TlsFiles) -> bool:
    try:
        return hello(port, tls) == "node1"
    except grpc.RpcError:
        return False


def test_given_files_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        given_certificates(str(tmp_path))


def test_a_stop_ends_the_wait(cluster: Cluster, tmp_path: Path) -> None:
    handler = Handler(cluster, tmp_path)
    with running(handler.server.run):
        assert handler.server.ready()
