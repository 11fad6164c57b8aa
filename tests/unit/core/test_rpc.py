"""The RPC plumbing with the real launcher service over unix sockets and TLS."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.certs import CertAuthority
from framework.waiting import eventually

from virt_core.rpc.channel import ChannelCache, tls_channel, unix_channel
from virt_core.rpc.handshake import negotiate
from virt_core.rpc.peer import listener_credentials
from virt_core.rpc.server import MAX_CONNECTIONS, RpcServer, serve_tcp, serve_unix
from virt_core.rpc.status import RpcFailure, failure_of, not_found
from virt_core.rpc.tls import TlsFiles, require_peer_name
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.launcher.v1.launcher_pb2_grpc import LauncherServicer, LauncherStub, add_LauncherServicer_to_server

API, HANDLER = "virt-api.virtpod.internal", "virt-handler.virtpod.internal"


class Launcher(LauncherServicer):  # type: ignore[misc]
    """Ping does what the test says."""

    def __init__(self) -> None:
        self.ping: Callable[[grpc.ServicerContext], Any] = lambda _context: None

    def Ping(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.ping(context)
        return pb.PingResponse()


@contextmanager
def serving(server: RpcServer) -> Iterator[RpcServer]:
    try:
        yield server
    finally:
        assert server.stop(0.5)


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


def registration(launcher: Launcher) -> Callable[[grpc.Server], object]:
    return lambda server: add_LauncherServicer_to_server(launcher, server)


def ping(channel: grpc.Channel, **options: Any) -> RpcFailure | None:
    try:
        LauncherStub(channel).Ping(pb.PingRequest(), **options)
    except grpc.RpcError as error:
        return failure_of(error)
    return None


def test_unix_by_path_and_by_descriptor(tmp_path: Path, launcher: Launcher) -> None:
    path = tmp_path / "s"
    with serving(serve_unix(str(path), [registration(launcher)])):
        fd = os.open(path, os.O_PATH)
        for target in (str(path), fd):
            with unix_channel(target) as channel:
                assert ping(channel) is None
        assert listener_credentials(str(path)).pid == os.getpid()
        os.close(fd)


def test_a_descriptor_that_is_reused_never_reaches_the_old_server(tmp_path: Path) -> None:
    """/proc/self/fd/N is one launcher today and another one tomorrow."""
    first, second = Launcher(), Launcher()
    seen: list[str] = []
    first.ping = lambda _c: seen.append("first")
    second.ping = lambda _c: seen.append("second")
    one, two = (serve_unix(str(tmp_path / n), [registration(s)]) for n, s in (("1", first), ("2", second)))
    with serving(one), serving(two):
        fd = os.open(tmp_path / "1", os.O_PATH)
        old = unix_channel(fd)
        assert ping(old) is None
        other = os.open(tmp_path / "2", os.O_PATH)
        os.dup2(other, fd)
        with unix_channel(fd) as channel:
            assert ping(channel) is None
        old.close()
        os.close(other)
        os.close(fd)
    assert seen == ["first", "second"]


def test_a_deep_directory_is_served_through_its_descriptor(tmp_path: Path, launcher: Launcher) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    dir_fd = os.open(deep, os.O_RDONLY | os.O_DIRECTORY)
    with serving(serve_unix("s", [registration(launcher)], dir_fd=dir_fd)):
        fd = os.open(deep / "s", os.O_PATH)
        with unix_channel(fd) as channel:
            assert ping(channel) is None
        os.close(fd)
    os.close(dir_fd)


def test_failures_become_statuses(tmp_path: Path, launcher: Launcher, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_context: grpc.ServicerContext) -> None:
        raise not_found("no machine")

    def crash(_context: grpc.ServicerContext) -> None:
        raise KeyError("oops")

    with (
        serving(serve_unix(str(tmp_path / "s"), [registration(launcher)])),
        unix_channel(str(tmp_path / "s")) as channel,
    ):
        launcher.ping = refuse
        refused = ping(channel)
        assert refused is not None
        assert (refused.code, refused.message) == (grpc.StatusCode.NOT_FOUND, "no machine")
        launcher.ping = crash
        crashed = ping(channel)
        assert crashed is not None
        assert (crashed.code, crashed.message) == (grpc.StatusCode.INTERNAL, "KeyError: 'oops'")
        launcher.ping = lambda context: context.abort(grpc.StatusCode.ABORTED, "own words")
        aborted = ping(channel)
        assert aborted is not None
        assert (aborted.code, aborted.message) == (grpc.StatusCode.ABORTED, "own words")
    log = capsys.readouterr().err
    assert log.count("Traceback") == 1
    assert '"method":"/virtpod.launcher.v1.Launcher/Ping"' in log


def test_every_call_has_a_deadline(tmp_path: Path, launcher: Launcher) -> None:
    release = threading.Event()
    launcher.ping = lambda _context: release.wait(10)
    path = str(tmp_path / "s")
    with serving(serve_unix(path, [registration(launcher)])), unix_channel(path, timeout_s=0.1) as channel:
        late = ping(channel)
        assert late is not None
        assert late.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert late.transient
        release.set()
        assert ping(channel, timeout=5) is None


def test_nobody_there_is_unavailable(tmp_path: Path) -> None:
    with unix_channel(str(tmp_path / "none")) as channel:
        failure = ping(channel, timeout=5)
    assert failure is not None
    assert failure.transient


def test_a_taken_address_is_an_error(launcher: Launcher, tmp_path: Path) -> None:
    tls = TlsFiles(CertAuthority().issue(HANDLER, HANDLER).write(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises((OSError, RuntimeError), match=str(port)):
            serve_tcp(f"127.0.0.1:{port}", [registration(launcher)], tls)


class Node:
    """A TLS server as virt-handler is one, open to virt-api only."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path, self.ca = tmp_path, CertAuthority()
        self.tls = TlsFiles(self.ca.issue(HANDLER, HANDLER).write(tmp_path / "server"))

    def serve(self, launcher: Launcher) -> RpcServer:
        guard = lambda context: require_peer_name(context, API)  # noqa: E731
        return serve_tcp("127.0.0.1:0", [registration(launcher)], self.tls, guard=guard)

    def client(self, *names: str, ca: CertAuthority | None = None) -> TlsFiles:
        leaf = (ca or self.ca).issue("client", *names)
        directory = leaf.write(self.tmp_path / f"client-{'-'.join(names)}")
        (directory / "ca.crt").write_bytes(self.ca.pem)
        return TlsFiles(directory)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_role_opens_the_door(node: Node, launcher: Launcher) -> None:
    with serving(node.serve(launcher)) as server, ChannelCacheOf(node.client(API)) as cache:
        address = f"127.0.0.1:{server.port}"
        assert ping(cache.get(address)) is None
        assert cache.get(address) is cache.get(address)
        cache.forget(address)


@contextmanager
def ChannelCacheOf(tls: TlsFiles) -> Iterator[ChannelCache]:
    cache = ChannelCache(tls, HANDLER, timeout_s=5)
    yield cache
    cache.close()


@pytest.mark.parametrize("names", [(), (HANDLER,), (API, HANDLER)])
def test_another_role_or_two_roles_do_not(node: Node, launcher: Launcher, names: tuple[str, ...]) -> None:
    with serving(node.serve(launcher)) as server:
        channel = tls_channel(f"127.0.0.1:{server.port}", node.client(*names), server_name=HANDLER)
        failure = ping(channel)
        channel.close()
    assert failure is not None
    assert failure.code is grpc.StatusCode.PERMISSION_DENIED


def test_another_ca_does_not_even_connect(node: Node, launcher: Launcher) -> None:
    with serving(node.serve(launcher)) as server:
        stranger = node.client(API, ca=CertAuthority("other"))
        with tls_channel(f"127.0.0.1:{server.port}", stranger, server_name=HANDLER) as channel:
            failure = ping(channel, timeout=5)
    assert failure is not None
    assert failure.code is grpc.StatusCode.UNAVAILABLE


def test_the_server_must_have_its_role_too(node: Node, launcher: Launcher) -> None:
    with serving(node.serve(launcher)) as server:
        channel = tls_channel(f"127.0.0.1:{server.port}", node.client(API), server_name="evil.internal")
        failure = ping(channel, timeout=5)
        channel.close()
    assert failure is not None
    assert failure.code is grpc.StatusCode.UNAVAILABLE


def test_new_certificates_are_used_without_a_restart(node: Node, launcher: Launcher) -> None:
    """Both sides move to a new CA; new connections use it."""
    tls = node.client(API)
    with serving(node.serve(launcher)) as server, ChannelCacheOf(tls) as cache:
        address = f"127.0.0.1:{server.port}"
        old = cache.get(address)
        assert ping(old) is None
        ca = CertAuthority("new")
        ca.issue(HANDLER, HANDLER).write(node.tmp_path / "server")
        ca.issue("client", API).write(node.tmp_path / f"client-{API}")
        assert cache.get(address) is not old
        assert ping(cache.get(address)) is None
        old.close()


def test_broken_files_keep_the_old_certificate(node: Node) -> None:
    before = node.tls.current()
    (node.tmp_path / "server/tls.key").unlink()
    assert node.tls.current() == before
    with pytest.raises(FileNotFoundError):
        TlsFiles(node.tmp_path / "nothing")


def test_handshake() -> None:
    assert negotiate([1, 2], [1]) == 1
    assert negotiate([1, 2, 3], [2, 3, 4]) == 3
    with pytest.raises(RpcFailure, match="virt-handler speaks 2, 3, this side 1") as caught:
        negotiate([3, 2], [1], peer="virt-handler")
    assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION


def test_connections_that_say_nothing_are_bounded(tmp_path: Path, launcher: Launcher) -> None:
    """Each costs the server a descriptor, before it knows whose they are. Who left makes room."""
    path = tmp_path / "s"
    with ExitStack() as stack:
        stack.enter_context(serving(serve_unix(str(path), [registration(launcher)])))
        clients = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(MAX_CONNECTIONS + 100)]
        for client in clients:
            client.connect(str(path))
            client.setblocking(False)
        eventually(lambda: sum(_is_open(client) for client in clients) == MAX_CONNECTIONS)
        for client in clients:
            client.close()
        with unix_channel(str(path)) as channel:
            eventually(lambda: ping(channel) is None)


def _is_open(client: socket.socket) -> bool:
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


AFTER_CLOSE = """
from virt_core.rpc.channel import unix_channel
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.launcher.v1.launcher_pb2_grpc import LauncherStub
channel = unix_channel("/nowhere/socket")
stub = LauncherStub(channel)
channel.close()
try:
    stub.Delete(pb.DeleteRequest())
except ValueError as error:
    print(error)
"""


def test_a_call_on_a_closed_channel_is_refused() -> None:
    """In a process of its own: gRPC once crashed it, at the first call of an RPC after somebody else had closed."""
    done = subprocess.run([sys.executable, "-c", AFTER_CLOSE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "closed channel" in done.stdout
