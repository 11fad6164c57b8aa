"""The port at which an importer says how far it is, and what a crowd can do to it."""

from __future__ import annotations

import socket

from framework.waiting import eventually

from virt_controller.datavolume.progress import ask
from virt_core.apis.base import from_plain
from virt_core.apis.pods import Pod
from virt_launcher.importer.progress import Meter, serve


def pod() -> Pod:
    return from_plain({"status": {"phase": "Running", "podIP": "127.0.0.1"}}, Pod)


def test_virt_controller_hears_how_far_it_is() -> None:
    meter = Meter()
    server = serve(meter, ("127.0.0.1", 0))
    port = server.server_address[1]
    try:
        unknown = ask(pod(), port)
        assert unknown is not None
        assert unknown.percent < 0
        meter.length, meter.taken = 400, 100
        told = ask(pod(), port)
        assert told is not None
        assert (told.percent, told.taken) == (25.0, 100)
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        assert eventually(lambda: ask(pod(), port) is None)
        for each in crowd:
            each.close()
        assert eventually(lambda: ask(pod(), port) is not None, within_s=10)
    finally:
        server.shutdown()
        server.server_close()
    assert ask(pod(), port) is None


def test_other_questions_get_no_answer() -> None:
    """Nor does a line without an end, and none of them keeps the next from asking."""
    server = serve(Meter(), ("127.0.0.1", 0))
    port = server.server_address[1]

    def said(request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            found = b""
            try:
                while data := connection.recv(4096):
                    found += data
            except ConnectionResetError:
                pass
            return found

    try:
        assert said(b"GET /progress HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.0 200 OK\r\n")
        for request in (b"GET /etc/passwd HTTP/1.1\r\n\r\n", b"POST /progress HTTP/1.1\r\n\r\n", b"\r\n\r\n", b""):
            assert said(request).startswith(b"HTTP/1.0 404 ")
        assert b" 200 " not in said(b"GET /" + b"x" * (1 << 20))
        said(b"GET /progress HTTP/1.1\r\n" + b"a: b\r\n" * 10000)
        assert ask(pod(), port) is not None
    finally:
        server.shutdown()
        server.server_close()
