"""A stream joined with sockets and pipes: both ways at once, bounded, and every way to end."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.certs import CertAuthority
from framework.waiting import eventually
from framework.wsserver import EchoServer, serving

from virt_core.kube.connect import Connection
from virtctl.stream.relay import Ends, relay, relay_socket
from virtctl.stream.websocket import Stream


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with serving(EchoServer()) as started:
        yield started


class Joined:
    """`relay_socket` in a thread; the test has the other end."""

    def __init__(self, server: EchoServer, connection: Connection | None = None) -> None:
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(10)
        self.errors: list[Exception] = []
        stream = Stream(connection or server.connection(), "/x")
        self.thread = threading.Thread(target=self._run, args=(stream, theirs))
        self.thread.start()

    def _run(self, stream: Stream, theirs: socket.socket) -> None:
        with theirs:
            try:
                relay_socket(stream, theirs)
            except ConnectionError as error:
                self.errors.append(error)

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += self.ours.recv(count - len(data)) or pytest.fail(f"closed after {len(data)} bytes")
        return data

    def end(self) -> list[Exception]:
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.ours.close()
        return self.errors


def test_echo(server: EchoServer) -> None:
    joined = Joined(server)
    joined.ours.sendall(b"hello")
    assert joined.read(5) == b"HELLO"
    joined.ours.close()
    assert joined.end() == []


def exchange_much(joined: Joined) -> None:
    """Eight megabytes are sent before any is read: neither side may wait for the other."""
    data = os.urandom(1 << 20).lower() * 8
    writer = threading.Thread(target=joined.ours.sendall, args=(data,))
    writer.start()
    assert joined.read(len(data)) == data.upper()
    writer.join(10)
    joined.ours.close()
    assert joined.end() == []


def test_much_both_ways_at_once(server: EchoServer) -> None:
    exchange_much(Joined(server))


def test_much_both_ways_at_once_over_tls(tmp_path: Path) -> None:
    """TLS does not read and write at the same time: the loop must go on with what it can do."""
    ca = CertAuthority()
    leaf = ca.issue("server", "localhost").write(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(leaf / "tls.crt", leaf / "tls.key")
    with serving(EchoServer(), tls) as server:
        exchange_much(Joined(server, Connection(f"https://localhost:{server.port}", ca_pem=ca.pem)))


def test_the_answer_to_a_half_closed_request_still_comes(server: EchoServer) -> None:
    joined = Joined(server)
    joined.ours.sendall(b"question")
    joined.ours.shutdown(socket.SHUT_WR)
    assert joined.read(8) == b"QUESTION"
    assert joined.ours.recv(1) == b""
    assert joined.end() == []


def test_the_guest_closes_in_order(server: EchoServer) -> None:
    joined = Joined(server)
    joined.ours.sendall(b"bye")
    assert joined.ours.recv(1) == b""
    assert joined.end() == []


def test_the_guest_closes_with_an_error(server: EchoServer) -> None:
    server.close_code = 1011
    joined = Joined(server)
    joined.ours.sendall(b"bye")
    assert [str(error) for error in joined.end()] == ["the guest is gone"]


def test_a_local_program_that_is_gone_is_not_waited_for(server: EchoServer) -> None:
    stdin_r, stdin_w = os.pipe()
    stdout_r, stdout_w = os.pipe()
    thread = threading.Thread(target=relay, args=(Stream(server.connection(), "/x"), Ends(stdin_r, stdout_w)))
    thread.start()
    os.write(stdin_w, b"big")
    assert os.read(stdout_r, 10)
    os.close(stdout_r)
    thread.join(10)
    assert not thread.is_alive()
    for descriptor in (stdin_r, stdin_w, stdout_w):
        os.close(descriptor)


def test_pings_are_answered_while_nothing_flows(server: EchoServer) -> None:
    """The server pings at once; its own check of the pong is the heartbeat of port-forward."""
    joined = Joined(server)
    eventually(lambda: server.paths == ["/x"])
    joined.ours.sendall(b"still there")
    assert joined.read(11) == b"STILL THERE"
    joined.ours.close()
    joined.end()
