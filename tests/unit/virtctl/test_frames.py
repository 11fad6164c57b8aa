"""Websocket frames against the rules of RFC 6455, and against another implementation of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websocket import ABNF

from virtctl.stream.frames import LIMIT, Message, Opcode, Parser, ProtocolError, encode


def server_frame(opcode: int, data: bytes, fin: int = 1) -> bytes:
    """As a server sends it: not masked."""
    return bytes(ABNF(fin, 0, 0, 0, opcode, 0, data).format())


def parse(data: bytes, step: int = 0) -> list[Message]:
    parser = Parser()
    pieces = [data[at : at + step] for at in range(0, len(data), step)] if step else [data]
    return [message for piece in pieces for message in parser.feed(piece)]


@given(st.lists(st.binary(max_size=70000), max_size=4), st.integers(1, 5000))
def test_messages_arrive_whole_however_they_are_cut(messages: list[bytes], step: int) -> None:
    wire = b"".join(server_frame(2, data) for data in messages)
    assert parse(wire, step) == [Message(Opcode.BINARY, data) for data in messages]


@given(st.binary(max_size=70000))
def test_what_we_send_is_masked_and_comes_back(data: bytes) -> None:
    frame = encode(Opcode.BINARY, data)
    assert frame[0] == 0x82
    assert frame[1] & 0x80
    extra = {126: 2, 127: 8}.get(frame[1] & 0x7F, 0)
    mask, payload = frame[2 + extra : 6 + extra], frame[6 + extra :]
    assert bytes(ABNF.mask(mask, payload)) == data if data else payload == b""


def test_fragments_are_put_together_around_a_ping() -> None:
    wire = server_frame(2, b"one ", fin=0) + server_frame(9, b"p") + server_frame(0, b"two", fin=1)
    assert parse(wire) == [Message(Opcode.PING, b"p"), Message(Opcode.BINARY, b"one two")]


@pytest.mark.parametrize(
    "wire",
    [
        bytes((0x83, 0)),  # an opcode that there is not
        bytes((0xC2, 0)),  # a reserved bit
        encode(Opcode.BINARY, b"x"),  # masked, though from a server
        server_frame(0, b"end of nothing"),
        server_frame(2, b"a", fin=0) + server_frame(2, b"b"),
        bytes((0x82, 127)) + (LIMIT + 1).to_bytes(8, "big"),
    ],
)
def test_what_no_server_may_send(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(wire)


@given(st.binary(max_size=200))
def test_noise_is_an_error_or_nothing(data: bytes) -> None:
    try:
        parse(data, 3)
    except ProtocolError:
        pass
