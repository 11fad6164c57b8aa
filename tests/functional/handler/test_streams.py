"""Consoles over the node service: mutual TLS with roles, real sockets, one client at a time."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.certs import CertAuthority
from framework.vmis import POD_UID, UID
from framework.waiting import eventually

from virt_core.apis import names
from virt_core.apis.podroles import Role
from virt_core.rpc.channel import tls_channel
from virt_core.rpc.status import failure_of
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.clock import SystemClock
from virt_handler.loop.records import GhostRecord
from virt_handler.loop.roster import Sessions
from virt_handler.loop.sessions import Session
from virt_handler.pods.files import PodFiles
from virt_handler.service import node_service
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2 as pb
from virt_protos.node.v1.node_pb2_grpc import NodeStub

from .conftest import Node

REF = pb.VMIRef(namespace="default", name="vm", uid=UID)


class Device:
    """QEMU's end: a listening socket that echoes in capitals."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clients: list[socket.socket] = []
        self._server = socket.socket(socket.AF_UNIX)
        directory = os.open(path.parent, os.O_PATH)
        self._server.bind(f"/proc/self/fd/{directory}/{path.name}")
        os.close(directory)
        self._server.listen(1)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        try:
            while True:
                client, _ = self._server.accept()
                self.clients.append(client)
                threading.Thread(target=self._echo, args=(client,), daemon=True).start()
        except OSError:
            return

    def _echo(self, client: socket.socket) -> None:
        with client:
            while data := client.recv(65536):
                client.sendall(data.upper())

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


class Client:
    """One open console."""

    def __init__(self, stub: NodeStub, ref: pb.VMIRef = REF, kind: Any = pb.STREAM_KIND_SERIAL_CONSOLE) -> None:
        self._out: queue.SimpleQueue[pb.StreamRequest | None] = queue.SimpleQueue()
        self._out.put(pb.StreamRequest(open=pb.OpenStream(vmi=ref, kind=kind)))
        self.call: Any = stub.Stream(iter(self._out.get, None))

    def opened(self) -> Client:
        assert next(self.call).WhichOneof("message") == "opened"
        return self

    def send(self, data: bytes) -> None:
        self._out.put(pb.StreamRequest(data=data))

    def expect(self, data: bytes) -> None:
        seen = b""
        while len(seen) < len(data):
            seen += next(self.call).data
        assert seen == data

    def end(self) -> None:
        self._out.put(None)

    def failure(self) -> grpc.StatusCode:
        """How the stream ends, once what it still carries is read."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError as error:
            return failure_of(error).code
        return grpc.StatusCode.OK


class Service:
    def __init__(self, node: Node, pki: Path) -> None:
        self._authority, self._pki = CertAuthority(), pki
        self.sessions = Sessions()
        record = GhostRecord(vmi_uid=UID, namespace="default", name="vm", pod_uid=POD_UID)
        self.session = Session(record, SystemClock())
        self.session.role = Role.ACTIVE
        self.session.domain_told(launcher_pb2.Domain(state=launcher_pb2.DOMAIN_STATE_RUNNING), 1)
        self.sessions.add(self.session)
        self.owner: list[str | None] = [POD_UID]
        servicer = node_service.NodeServicer(
            "node1", self.sessions, PodFiles(str(node.pods)), pod_of=lambda _pid: self.owner[0]
        )
        self.server = node_service.serve("127.0.0.1:0", self.tls("server", names.tls_name_node("node1")), servicer)

    def tls(self, directory: str, *roles: str) -> TlsFiles:
        return TlsFiles(self._authority.issue("x", *roles).write(self._pki / directory))

    @contextmanager
    def stub(self, *roles: str) -> Iterator[NodeStub]:
        tls = self.tls("client", *(roles or (names.TLS_NAME_API,)))
        channel = tls_channel(f"127.0.0.1:{self.server.port}", tls, server_name=names.tls_name_node("node1"))
        with channel:
            yield NodeStub(channel)


@pytest.fixture
def service(node: Node, tmp_path: Path) -> Iterator[Service]:
    service = Service(node, tmp_path / "pki")
    yield service
    service.server.stop(0)


@pytest.fixture
def device(node: Node) -> Iterator[Device]:
    device = Device(node.private / UID / "virt-serial0")
    yield device
    device.close()


def test_bytes_go_both_ways(service: Service, device: Device) -> None:
    with service.stub() as stub:
        client = Client(stub).opened()
        client.send(b"hello")
        client.expect(b"HELLO")
        blob = os.urandom(300_000).hex().encode()
        client.send(blob)
        client.expect(blob.upper())
        client.end()


def test_new_client_closes_the_one_before(service: Service, device: Device) -> None:
    with service.stub() as stub:
        first = Client(stub).opened()
        second = Client(stub).opened()
        assert first.failure() is grpc.StatusCode.ABORTED
        second.send(b"mine")
        second.expect(b"MINE")
        second.end()


def test_a_machine_that_leaves_says_so(service: Service, device: Device) -> None:
    """QEMU closes its devices before anybody has told that the guest arrived; a move that failed is no reason."""
    running = launcher_pb2.DOMAIN_STATE_RUNNING
    for number, failed in ((2, False), (3, True)):
        move = launcher_pb2.Move(uid="job", started_us=1, failed=failed)
        service.session.domain_told(launcher_pb2.Domain(state=running, move=move), number)
        with service.stub() as stub:
            client = Client(stub).opened()
            eventually(lambda seen=number - 1: len(device.clients) >= seen)
            device.clients[-1].shutdown(socket.SHUT_RDWR)
            assert client.failure() is (grpc.StatusCode.OK if failed else grpc.StatusCode.UNAVAILABLE)


def test_end_of_the_machine_ends_the_stream(service: Service, device: Device) -> None:
    with service.stub() as stub:
        client = Client(stub).opened()
        eventually(lambda: device.clients)
        device.clients[0].shutdown(socket.SHUT_RDWR)
        assert list(client.call) == []
        client.end()


def test_client_that_leaves_frees_the_device(service: Service, device: Device) -> None:
    with service.stub() as stub:
        client = Client(stub).opened()
        client.call.cancel()
        eventually(lambda: device.clients and device.clients[0].fileno() == -1)


@pytest.mark.parametrize(
    "roles", [(names.tls_name_node("node2"),), (names.TLS_NAME_API, "virt-handler.virtpod.internal"), ("x.y",)]
)
def test_other_roles_of_the_same_ca_are_refused(service: Service, device: Device, roles: tuple[str, ...]) -> None:
    """CVE-2025-64434: a handler's certificate does not make it virt-api."""
    with service.stub(*roles) as stub:
        with pytest.raises(grpc.RpcError) as caught:
            stub.Pause(pb.VMIRequest(vmi=REF))
        assert failure_of(caught.value).code is grpc.StatusCode.PERMISSION_DENIED
        assert Client(stub).failure() is grpc.StatusCode.PERMISSION_DENIED
    assert not device.clients


def test_symlink_to_another_socket_is_refused(service: Service, node: Node, tmp_path: Path) -> None:
    """CVE-2026-7374: a link at the console's place that leads to a socket of the node."""
    victim = Device(tmp_path / "cri.sock")
    (node.private / UID / "virt-serial0").symlink_to(tmp_path / "cri.sock")
    try:
        with service.stub() as stub:
            assert Client(stub).failure() is grpc.StatusCode.FAILED_PRECONDITION
        assert not victim.clients
    finally:
        victim.close()


def test_symlinked_directory_is_refused(service: Service, node: Node, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    victim = Device(tmp_path / "other" / "virt-serial0")
    (node.private / UID).rmdir()
    (node.private / UID).symlink_to(tmp_path / "other")
    try:
        with service.stub() as stub:
            assert Client(stub).failure() is grpc.StatusCode.FAILED_PRECONDITION
        assert not victim.clients
    finally:
        victim.close()


def test_listener_of_the_node_is_refused(service: Service, device: Device) -> None:
    """Not of the Pod, and alive: whoever it is, it is not this machine."""
    service.owner[0] = None
    with service.stub() as stub:
        assert Client(stub).failure() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize(
    "ref",
    [
        pb.VMIRef(namespace="default", name="vm", uid="00000000-0000-0000-0000-000000000000"),
        pb.VMIRef(namespace="other", name="vm", uid=UID),
        pb.VMIRef(namespace="default", name="vm", uid="../../x"),
    ],
)
def test_only_the_very_vmi(service: Service, device: Device, ref: pb.VMIRef) -> None:
    with service.stub() as stub:
        assert Client(stub, ref).failure() is grpc.StatusCode.NOT_FOUND


def test_machine_that_does_not_run_has_no_console(service: Service, device: Device) -> None:
    service.session.domain_told(launcher_pb2.Domain(state=launcher_pb2.DOMAIN_STATE_SHUTOFF), 2)
    with service.stub() as stub:
        assert Client(stub).failure() is grpc.StatusCode.FAILED_PRECONDITION


def test_stream_must_begin_with_open(service: Service) -> None:
    with service.stub() as stub:
        call = stub.Stream(iter([pb.StreamRequest(data=b"x")]))
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert failure_of(caught.value).code is grpc.StatusCode.INVALID_ARGUMENT


def test_no_display_is_said_plainly(service: Service) -> None:
    with service.stub() as stub:
        assert Client(stub, kind=pb.STREAM_KIND_VNC).failure() is grpc.StatusCode.FAILED_PRECONDITION
