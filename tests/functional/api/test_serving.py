"""The HTTPS server's certificate and the CA it asks clients for, while both change."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.certs import CertAuthority
from framework.waiting import eventually

from virt_api.server import ServingTls
from virt_core.rpc.tls import TlsFiles


class Server:
    """Greets each client with the name in its certificate. Handshakes in one thread, as in an event loop."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.ca = directory, CertAuthority("serving")
        self.ca.issue("one", "localhost", "127.0.0.1").write(directory / "serving")
        self.tls = ServingTls(TlsFiles(directory / "serving", ca=False))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            try:
                with self.tls.context.wrap_socket(plain, server_side=True) as connection:
                    connection.sendall(str(connection.getpeercert()).encode())
            except OSError:
                plain.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def greet(
        self, host: str = "127.0.0.1", *, client: CertAuthority | None = None, ca: CertAuthority | None = None
    ) -> str:
        """What the server made of our certificate. Raises ssl.SSLError."""
        context = ssl.create_default_context(cadata=(ca or self.ca).pem.decode())
        if client is not None:
            where = client.issue("proxy").write(self.directory / "client")
            context.load_cert_chain(where / "tls.crt", where / "tls.key")
        with (
            socket.create_connection(("127.0.0.1", self.port), 5) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            assert connection.session is None or not connection.session.has_ticket
            return connection.recv(4096).decode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_next_handshake_shows_the_new_certificate(server: Server, host: str) -> None:
    """With a server name in the handshake and without."""
    assert server.greet(host) == "None"
    new = CertAuthority("new")
    new.issue("two", "localhost", "127.0.0.1").write(server.directory / "serving")
    assert server.greet(host, ca=new) == "None"
    with pytest.raises(ssl.SSLCertVerificationError):
        server.greet(host)


def test_a_certificate_is_asked_for_only_when_there_is_a_ca_for_it(server: Server) -> None:
    one, two = CertAuthority("one"), CertAuthority("two")
    assert server.greet(client=one) == "None"
    server.tls.trust(one.pem)
    assert "'proxy'" in server.greet(client=one)
    assert server.greet() in ("None", "{}")
    with pytest.raises(ssl.SSLError):
        server.greet(client=two)
    server.tls.trust(two.pem)
    assert "'proxy'" in server.greet(client=two)
    with pytest.raises(ssl.SSLError):
        server.greet(client=one)
    server.tls.trust(b"")
    assert server.greet(client=one) == "None"


def test_two_cas_in_a_row_are_both_trusted(server: Server) -> None:
    """As a cluster does it that changes the CA of its front proxy."""
    one, two = CertAuthority("one"), CertAuthority("two")
    server.tls.trust(one.pem + two.pem)
    assert "'proxy'" in server.greet(client=one)
    assert "'proxy'" in server.greet(client=two)


@pytest.mark.parametrize("garbage", [b"garbage", "CÄ".encode()])
def test_a_ca_that_can_not_be_read_changes_nothing(server: Server, garbage: bytes) -> None:
    one = CertAuthority("one")
    server.tls.trust(one.pem)
    server.tls.trust(garbage)
    assert "'proxy'" in server.greet(client=one)
    with pytest.raises(ssl.SSLError):
        server.greet(client=CertAuthority("two"))


def test_a_broken_certificate_leaves_the_old_one(server: Server) -> None:
    (server.directory / "serving/tls.crt").write_bytes(b"garbage")
    assert server.greet() == "None"
    server.ca.issue("two", "127.0.0.1").write(server.directory / "serving")
    eventually(lambda: server.greet() == "None")
