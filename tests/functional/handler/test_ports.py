"""Ports, USB places and TLS at the node: real sockets, and only the address that the node gave the Pod."""

from __future__ import annotations

import os
import queue
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from framework.certs import CertAuthority
from framework.vmis import UID

from virt_core.apis.netplan import NetReport, NetReportInterface
from virt_core.rpc.tls import TlsFiles
from virt_handler.pods.launchers import Launcher
from virt_handler.streams import dial
from virt_handler.streams.ends import DatagramWire, TlsWire, Wire
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2 as pb

from .conftest import Node
from .test_streams import REF, Client, Device, Service, service

__all__ = ["service"]


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch, service: Service) -> str:
    """The tests have no Pod network: here the loopback may be a Pod's."""
    monkeypatch.setattr(dial, "pod_address", lambda text: text)
    report = NetReport(interfaces=[NetReportInterface(name="default", pod_ips=["127.0.0.1"])])
    service.session.network_done(report)
    return "127.0.0.1"


def opened(stub: Any, kind: Any, **more: Any) -> Client:
    client = Client.__new__(Client)
    client._out = queue.SimpleQueue()
    client._out.put(pb.StreamRequest(open=pb.OpenStream(vmi=REF, kind=kind, **more)))
    client.call = stub.Stream(iter(client._out.get, None))
    return client


@pytest.fixture
def tcp_port() -> Iterator[int]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            while True:
                client, _ = server.accept()
                with client:
                    while data := client.recv(65536):
                        client.sendall(data.upper())
        except OSError:
            return

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def test_tcp(service: Service, loopback: str, tcp_port: int) -> None:
    with service.stub() as stub:
        client = opened(stub, pb.STREAM_KIND_TCP, port=tcp_port).opened()
        blob = os.urandom(150_000).hex().encode()
        client.send(blob)
        client.expect(blob.upper())
        client.end()


def test_udp_keeps_datagrams_apart(service: Service, loopback: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, service.stub() as stub:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        client = opened(stub, pb.STREAM_KIND_UDP, port=server.getsockname()[1]).opened()
        client.send(b"one")
        client.send(b"two" * 20_000)
        first, sender = server.recvfrom(65535)
        assert first == b"one"
        assert server.recv(65535) == b"two" * 20_000
        server.sendto(b"a", sender)
        server.sendto(b"b", sender)
        assert [next(client.call).data for _ in range(2)] == [b"a", b"b"]
        client.end()


def test_nobody_there_is_said_at_once(service: Service, loopback: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with service.stub() as stub:
        assert opened(stub, pb.STREAM_KIND_TCP, port=port).failure() is grpc.StatusCode.INTERNAL
        assert opened(stub, pb.STREAM_KIND_TCP, port=0).failure() is grpc.StatusCode.INVALID_ARGUMENT


def test_each_address_that_failed_is_named_with_its_reason(service: Service, loopback: str) -> None:
    """Of two families the first is the one that counts, and the second often has no route at all."""
    report = NetReport(interfaces=[NetReportInterface(name="default", pod_ips=["127.0.0.1", "127.0.0.2"])])
    service.session.network_done(report)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with service.stub() as stub:
        client = opened(stub, pb.STREAM_KIND_TCP, port=port)
        with pytest.raises(grpc.RpcError) as caught:
            next(client.call)
    told = caught.value.details()
    assert f"port {port} of VMI" in told
    assert "127.0.0.1: [Errno 111]" in told
    assert "127.0.0.2: [Errno 111]" in told


@pytest.mark.parametrize("address", ["", "127.0.0.1", "169.254.169.254", "0.0.0.0", "example.com"])
def test_only_a_pods_address_is_dialled(service: Service, tcp_port: int, address: str) -> None:
    service.session.network_done(NetReport(interfaces=[NetReportInterface(name="default", pod_ips=[address])]))
    with service.stub() as stub:
        assert opened(stub, pb.STREAM_KIND_TCP, port=tcp_port).failure() is grpc.StatusCode.FAILED_PRECONDITION


def test_usb_takes_the_next_free_place(service: Service, node: Node) -> None:
    devices = [Device(node.private / UID / f"virt-usbredir-{slot}") for slot in range(4)]
    try:
        with service.stub() as stub:
            clients = [opened(stub, pb.STREAM_KIND_USBREDIR).opened() for _ in devices]
            for number, client in enumerate(clients):
                client.send(b"usb%d" % number)
                client.expect(b"USB%d" % number)
            assert opened(stub, pb.STREAM_KIND_USBREDIR).failure() is grpc.StatusCode.RESOURCE_EXHAUSTED
            for client in clients:
                client.end()
    finally:
        for device in devices:
            device.close()


def test_a_session_is_preserved_if_asked_for(service: Service, node: Node) -> None:
    device = Device(node.private / UID / "virt-vnc")
    try:
        with service.stub() as stub:
            first = opened(stub, pb.STREAM_KIND_VNC).opened()
            second = opened(stub, pb.STREAM_KIND_VNC, preserve_session=True)
            assert second.failure() is grpc.StatusCode.RESOURCE_EXHAUSTED
            first.send(b"still mine")
            first.expect(b"STILL MINE")
            first.end()
    finally:
        device.close()


@pytest.mark.parametrize("cid", [0, 1, 2, 0xFFFFFFFF])
def test_vsock_never_leads_to_the_node(service: Service, cid: int) -> None:
    with service.stub() as stub:
        failed = opened(stub, pb.STREAM_KIND_VSOCK, port=5, cid=cid).failure()
    assert failed is grpc.StatusCode.INVALID_ARGUMENT


class ToLoopback(socket.socket):
    """Stands for a vsock: the guest's port is one of the loopback, as the test machine's kernel has no vhost_vsock."""

    asked: ClassVar[list[tuple[int, int]]] = []
    port: ClassVar[int] = 0

    def connect(self, address: Any) -> None:
        self.asked.append(address)
        super().connect(("127.0.0.1", self.port))


def test_vsock(service: Service, tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain bytes both ways, to the address that the node knows of this guest and to no other."""
    monkeypatch.setattr(dial, "_vsock_socket", ToLoopback)
    monkeypatch.setattr(ToLoopback, "port", tcp_port)
    service.session.vsock_cid = 42
    with service.stub() as stub:
        client = opened(stub, pb.STREAM_KIND_VSOCK, port=1024, cid=42).opened()
        blob = os.urandom(100_000).hex().encode()
        client.send(blob)
        client.expect(blob.upper())
        client.end()
        assert opened(stub, pb.STREAM_KIND_VSOCK, port=1024, cid=43).failure() is grpc.StatusCode.INVALID_ARGUMENT
    assert ToLoopback.asked == [(42, 1024)]


def test_tls_to_a_guest_both_ways_at_once(tmp_path: Path) -> None:
    """A guest that writes much before it reads must not lock the wire up; and it sees who we are."""
    authority = CertAuthority()
    ours = authority.issue("virt-handler", "virt-handler.virtpod.internal").write(tmp_path / "ours")
    guest = CertAuthority("guest").issue("guest", "guest").write(tmp_path / "guest")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(guest / "tls.crt", guest / "tls.key")
    context.load_verify_locations(cadata=authority.pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    here, there = socket.socketpair()
    blob, seen, names = os.urandom(2_000_000), bytearray(), []

    def serve() -> None:
        with context.wrap_socket(there, server_side=True) as tls:
            names.append(dict(part[0] for part in (tls.getpeercert() or {})["subject"])["commonName"])
            tls.sendall(blob)
            while len(seen) < len(blob):
                seen.extend(tls.recv(65536))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    wire: Wire = TlsWire(here, TlsFiles(ours).guest_context())
    sender = threading.Thread(target=wire.send, args=(blob,), daemon=True)
    sender.start()
    received = bytearray()
    while len(received) < len(blob):
        received += wire.receive()
    sender.join(20)
    thread.join(20)
    wire.close()
    assert received == blob
    assert seen == blob
    assert names == ["virt-handler"]


def test_a_datagram_wire_wakes_up_when_hung_up() -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect(("127.0.0.1", 9))
    wire = DatagramWire(sock)
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: results.append(wire.receive()), daemon=True)
    thread.start()
    wire.hang_up()
    thread.join(10)
    wire.close()
    assert results == [b""]


class Told(Launcher):
    """A launcher that notes what it is told, and says more than it may."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._stub = Names()

    def _call(self, method: Any, request: Any, timeout_s: float = 1.0) -> Any:
        self.calls.append(method)
        answers: dict[str, Any] = {
            "Screenshot": launcher_pb2.ScreenshotResponse(image=b"<html>"),
            "GetUsers": launcher_pb2.GetUsersResponse(users=[launcher_pb2.GuestUser(name="\x07root")] * 5000),
            "GetFilesystems": launcher_pb2.GetFilesystemsResponse(
                filesystems=[launcher_pb2.GuestFilesystem(disk_name="vda1")]
            ),
        }
        return answers.get(method)


class Names:
    def __getattr__(self, name: str) -> str:
        return name


def test_commands_reach_the_launcher_and_its_answers_are_cut(service: Service) -> None:
    launcher = Told()
    service.session.launcher = launcher
    with service.stub() as stub:
        stub.SoftReboot(pb.VMIRequest(vmi=REF))
        stub.Reset(pb.VMIRequest(vmi=REF))
        stub.Freeze(pb.FreezeRequest(vmi=REF, unfreeze_timeout_seconds=7))
        stub.Unfreeze(pb.VMIRequest(vmi=REF))
        users = stub.GetUsers(pb.VMIRequest(vmi=REF)).users
        assert stub.GetFilesystems(pb.VMIRequest(vmi=REF)).filesystems[0].disk_name == "vda1"
        with pytest.raises(grpc.RpcError):
            stub.Screenshot(pb.VMIRequest(vmi=REF))
    assert launcher.calls == [
        "SoftReboot", "Reset", "Freeze", "Unfreeze", "GetUsers", "GetFilesystems", "Screenshot",
    ]  # fmt: skip
    assert (len(users), users[0].name) == (256, " root")
