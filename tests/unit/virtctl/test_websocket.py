"""What a server says on the wire, byte for byte, and what the stream makes of it: the rules of RFC 6455 hold."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
from collections.abc import Iterator

import pytest
from framework.waiting import eventually

from virt_core.kube.connect import Connection
from virt_core.kube.errors import Unreachable
from virtctl.stream import handshake, websocket
from virtctl.stream.handshake import HandshakeRefused
from virtctl.stream.websocket import Stream

_BINARY, _CLOSE, _PING = 2, 8, 9


def frame(opcode: int, data: bytes = b"", *, final: bool = True, masked: bool = False) -> bytes:
    """As a server sends it: not masked."""
    first = opcode | (0x80 if final else 0)
    length = bytes((len(data),)) if len(data) < 126 else bytes((126,)) + len(data).to_bytes(2, "big")
    if masked:
        return bytes((first, length[0] | 0x80)) + length[1:] + bytes(4) + data
    return bytes((first,)) + length + data


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(_CLOSE, code.to_bytes(2, "big") + reason)


class Wire:
    """A server for one connection that answers the request with whatever the test wants."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.request = ""
        self.sockets: list[socket.socket] = []

    def answering(self, *, status: bytes = b"", then: bytes = b"") -> threading.Thread:
        """101, or the given bytes instead; then, in the same packet, what a server may say at once."""
        thread = threading.Thread(target=self._answer, args=(status, then))
        thread.start()
        return thread

    def _answer(self, status: bytes, then: bytes) -> None:
        taken, _ = self._listener.accept()
        self.sockets.append(taken)
        while "\r\n\r\n" not in self.request:
            self.request += taken.recv(65536).decode()
        key = self.request.split("Sec-WebSocket-Key: ")[1].split("\r\n")[0]
        accept = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest())
        upgrade = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        taken.sendall((status or upgrade + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n") + then)
        if status:
            taken.shutdown(socket.SHUT_WR)

    def opened(self, then: bytes = b"") -> Stream:
        thread = self.answering(then=then)
        stream = Stream(Connection(self.address), "/x")
        thread.join()
        return stream

    def heard(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += self.sockets[0].recv(count - len(data)) or pytest.fail(f"closed after {data!r}")
        return data

    def close(self) -> None:
        for opened in (*self.sockets, self._listener):
            opened.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.close()


def received(stream: Stream) -> bytes | None:
    """The next thing that is not nothing."""
    got: list[bytes | None] = []

    def look() -> bool:
        got.append(stream.receive())
        return got[-1] != b""

    eventually(look)
    return got[-1]


def test_what_comes_with_the_answer_to_the_handshake_is_not_lost(wire: Wire) -> None:
    stream = wire.opened(frame(_BINARY, b"login:"))
    assert stream.pending()
    assert stream.receive() == b"login:"
    stream.close()


def test_the_request_goes_below_the_path_of_the_server(wire: Wire) -> None:
    """A proxy in front of several clusters tells them apart by a path."""
    thread = wire.answering()
    Stream(Connection(f"{wire.address}/clusters/one", token="secret"), "/apis/x?y=1").close()
    thread.join()
    assert wire.request.startswith("GET /clusters/one/apis/x?y=1 HTTP/1.1\r\n")
    assert "Authorization: Bearer secret\r\n" in wire.request
    assert "Origin" not in wire.request


def test_fragments_are_put_together_around_a_ping(wire: Wire) -> None:
    stream = wire.opened(frame(_BINARY, b"one ", final=False) + frame(_PING, b"p") + frame(0, b"two"))
    assert received(stream) == b"one two"
    assert wire.heard(7)[:2] == b"\x8a\x81", "a pong with one masked byte"
    stream.close()


def test_a_message_cut_into_single_bytes_arrives_whole(wire: Wire) -> None:
    stream = wire.opened()
    wire.sockets[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in frame(_BINARY, b"x" * 300):
        wire.sockets[0].sendall(bytes((byte,)))
    assert received(stream) == b"x" * 300
    stream.close()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(frame(3), id="an opcode that there is not"),
        pytest.param(bytes((0xC2, 0)), id="a reserved bit"),
        pytest.param(frame(_BINARY, b"x", masked=True), id="masked, though from a server"),
        pytest.param(frame(0, b"end of nothing"), id="a continuation of nothing"),
        pytest.param(frame(_BINARY, b"a", final=False) + frame(_BINARY, b"b"), id="mixed fragments"),
        pytest.param(frame(_PING, b"p", final=False), id="a ping in parts"),
    ],
)
def test_what_no_server_may_send_ends_the_stream_with_a_reason(wire: Wire, sent: bytes) -> None:
    stream = wire.opened(sent)
    with pytest.raises(ConnectionError):
        received(stream)
    assert stream.reason
    stream.close()
    assert wire.heard(1) == b"\x88", "the server is told"


def test_a_message_without_end_is_not_kept(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "LIMIT", 1000)
    stream = wire.opened(frame(_BINARY, b"a" * 600, final=False) + frame(0, b"a" * 600, final=False))
    with pytest.raises(ConnectionError, match="too long"):
        received(stream)
    stream.close()


@pytest.mark.parametrize("goodbye", [frame(_CLOSE), closing(1000, b"done")])
def test_a_goodbye_in_order_is_answered_and_ends_it(wire: Wire, goodbye: bytes) -> None:
    stream = wire.opened(frame(_PING) + goodbye)
    assert received(stream) is None
    stream.push(b"too late")
    stream.close()
    assert wire.heard(2)[0] == 0x88, "neither a pong nor data goes out after the server's goodbye"


@pytest.mark.parametrize(("reason", "said"), [(b"evicted", "evicted"), (b"", "websocket close code 1011")])
def test_a_goodbye_with_an_error_says_it(wire: Wire, reason: bytes, said: str) -> None:
    stream = wire.opened(closing(1011, reason))
    with pytest.raises(ConnectionError, match=f"^{said}$"):
        received(stream)
    stream.close()


def test_a_connection_that_just_ends_is_an_error(wire: Wire) -> None:
    stream = wire.opened()
    wire.sockets[0].shutdown(socket.SHUT_RDWR)
    with pytest.raises(ConnectionError, match="the server ended the connection"):
        received(stream)
    stream.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\nupstream is away", "upstream is away"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 99\r\n\r\nupstream is", "upstream is"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 999999\r\n\r\n" + b"u" * 200_000, "uuu"),
    ],
)
def test_a_refusal_is_shown_however_its_body_ends(wire: Wire, answer: bytes, said: str) -> None:
    thread = wire.answering(status=answer)
    with pytest.raises(HandshakeRefused, match=said) as refused:
        Stream(Connection(wire.address), "/x")
    assert refused.value.status == 502
    thread.join()


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 101 Fine\r\nUpgrade: websocket\r\n\r\n"])
def test_an_answer_that_is_no_websocket_is_no_answer(wire: Wire, answer: bytes) -> None:
    thread = wire.answering(status=answer)
    with pytest.raises(Unreachable, match=f"no answer from the API server {wire.address}: "):
        Stream(Connection(wire.address), "/x")
    thread.join()


def test_a_server_that_says_nothing_is_given_up(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "_HANDSHAKE_S", 0.05)
    with pytest.raises(Unreachable, match="timed out"):
        Stream(Connection(wire.address), "/x")
