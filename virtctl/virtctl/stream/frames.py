"""Websocket frames (RFC 6455), without any input or output: bytes in, messages out, and the other way round."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from dataclasses import dataclass

#: Nobody sends us more at once; a length above it is a broken or hostile server.
LIMIT = 16 * 1024 * 1024


class Opcode(enum.IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class ProtocolError(Exception):
    """What came is no websocket frame that a server may send."""


@dataclass(frozen=True, slots=True)
class Message:
    opcode: Opcode
    data: bytes


def encode(opcode: Opcode, data: bytes) -> bytes:
    """One frame of a client: masked, as the protocol demands."""
    length, mask = len(data), os.urandom(4)
    if length < 126:
        head = bytes((0x80 | opcode, 0x80 | length))
    elif length < 65536:
        head = bytes((0x80 | opcode, 0x80 | 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0x80 | 127)) + length.to_bytes(8, "big")
    return head + mask + _masked(data, mask)


def _masked(data: bytes, mask: bytes) -> bytes:
    """As one large number: Python does that as fast as it copies."""
    if not data:
        return b""
    stretched = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "little") ^ int.from_bytes(stretched, "little")).to_bytes(len(data), "little")


class Parser:
    """Feed it what arrives, take out whole messages. Bounded: a message longer than LIMIT is an error."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._opcode = Opcode.CONTINUATION
        self._parts = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        self._buffer += data
        while (frame := self._frame()) is not None:
            opcode, final, payload = frame
            if opcode >= Opcode.CLOSE:
                yield Message(opcode, payload)
            elif (message := self._assemble(opcode, final, payload)) is not None:
                yield message

    def _frame(self) -> tuple[Opcode, bool, bytes] | None:
        head = self._head()
        if head is None:
            return None
        start, length = head
        if len(self._buffer) < start + length:
            return None
        first = self._buffer[0]
        payload = bytes(memoryview(self._buffer)[start : start + length])
        del self._buffer[: start + length]
        try:
            return Opcode(first & 0x0F), bool(first & 0x80), payload
        except ValueError as error:
            raise ProtocolError(str(error)) from error

    def _head(self) -> tuple[int, int] | None:
        """Where the payload begins, and its length."""
        if len(self._buffer) < 2:
            return None
        if self._buffer[0] & 0x70 or self._buffer[1] & 0x80:
            raise ProtocolError("reserved bits are set, or a server's frame is masked")
        length = self._buffer[1]
        extra = {126: 2, 127: 8}.get(length, 0)
        if len(self._buffer) < 2 + extra:
            return None
        if extra:
            length = int.from_bytes(self._buffer[2 : 2 + extra], "big")
        if length + len(self._parts) > LIMIT:
            raise ProtocolError(f"a message of {length} bytes is too long")
        return 2 + extra, length

    def _assemble(self, opcode: Opcode, final: bool, payload: bytes) -> Message | None:
        if (opcode is Opcode.CONTINUATION) == (self._opcode is Opcode.CONTINUATION):
            raise ProtocolError("fragments of messages are mixed up")
        if opcode is not Opcode.CONTINUATION:
            if final:
                return Message(opcode, payload)
            self._opcode = opcode
        self._parts += payload
        if not final:
            return None
        message = Message(self._opcode, bytes(self._parts))
        self._opcode, self._parts = Opcode.CONTINUATION, bytearray()
        return message
