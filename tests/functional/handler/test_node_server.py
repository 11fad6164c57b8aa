"""The node service of a node whose certificate is still to come."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.certs import CertAuthority, Leaf
from framework.fake_kube import fake_kube
from framework.waiting import eventually, running

from virt_core.apis import names
from virt_core.rpc.channel import tls_channel
from virt_core.rpc.handshake import PROTOCOL_VERSIONS
from virt_core.rpc.tls import TlsFiles
from virt_handler.loop.roster import Sessions
from virt_handler.pods.files import PodFiles
from virt_handler.service.node_server import NodeServer, certificates
from virt_handler.service.node_service import NodeServicer
from virt_protos.node.v1 import node_pb2, node_pb2_grpc

SECRET = "/api/v1/namespaces/prod/secrets/virt-handler-tls"
API, HANDLER = names.tls_name_api("prod"), names.tls_name_handler("prod")


def secret(leaf: Leaf) -> dict[str, Any]:
    files = {"tls.crt": leaf.cert, "tls.key": leaf.key, "ca.crt": leaf.ca}
    return {"data": {name: base64.b64encode(data).decode() for name, data in files.items()}}


def hello(port: int, tls: TlsFiles) -> str:
    with tls_channel(f"127.0.0.1:{port}", tls, server_name=HANDLER) as channel:
        request = node_pb2.HelloRequest(versions=PROTOCOL_VERSIONS)
        return str(node_pb2_grpc.NodeStub(channel).Hello(request, timeout=5).node_name)  # type: ignore[no-untyped-call]


def test_it_says_what_it_waits_for_then_serves_and_follows(tmp_path: Path) -> None:
    """The roles are those of the namespace that we are installed in."""
    ca = CertAuthority()
    with fake_kube() as kube:
        found = certificates(kube.client(), "prod", str(tmp_path / "tls"), "virt-handler-tls")
        make = lambda tls: NodeServicer("node1", Sessions(), PodFiles(str(tmp_path)), tls=tls)  # noqa: E731
        server = NodeServer("127.0.0.1:0", found, make, API)
        assert found.secret is not None
        with running(found.secret.run, server.run):
            maker = "virt-controller's leader (or cert-manager)"
            assert server.ready() == f"waiting for Secret prod/virt-handler-tls, which {maker} makes"
            kube.put(SECRET, secret(ca.issue("virt-handler", HANDLER)))
            eventually(lambda: server.ready() is None)
            port = server.port
            client = TlsFiles(ca.issue("virt-api", API).write(tmp_path / "client"))
            assert hello(port, client) == "node1"
            stranger = TlsFiles(ca.issue("virt-api", names.TLS_NAME_API).write(tmp_path / "stranger"))
            with pytest.raises(grpc.RpcError, match=r"this call is for virt-api\.prod\.internal"):
                hello(port, stranger)
            new = CertAuthority("new")
            kube.put(SECRET, secret(new.issue("virt-handler", HANDLER)))
            moved = TlsFiles(new.issue("virt-api", API).write(tmp_path / "moved"))
            eventually(lambda: answers(port, moved))
            assert not answers(port, client)


def answers(port: int, tls: TlsFiles) -> bool:
    try:
        return hello(port, tls) == "node1"
    except grpc.RpcError:
        return False


def test_without_a_secret_the_files_must_be_there(tmp_path: Path) -> None:
    with fake_kube() as kube, pytest.raises(FileNotFoundError):
        certificates(kube.client(), "prod", str(tmp_path), "")


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    with fake_kube() as kube:
        found = certificates(kube.client(), "prod", str(tmp_path), "virt-handler-tls")
        server = NodeServer("127.0.0.1:0", found, lambda _: pytest.fail("served"), API)
        with running(server.run):
            assert server.ready()
