"""rtnetlink, as much of it as we need.

pyroute2 does all this and more, but importing it takes 185 ms, which is more than our whole run may take.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 1, 4, 0x300
NLM_F_EXCL, NLM_F_CREATE, NLM_F_REPLACE = 0x200, 0x400, 0x100
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_ACK_TLVS = 0x200
NLMSGERR_ATTR_MSG = 1
SOL_NETLINK, NETLINK_EXT_ACK = 270, 11
NLA_TYPE_MASK = 0x3FFF
NLA_F_NESTED = 0x8000
TIMEOUT_S = 5

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")

Attributes = dict[int, bytes]


def attribute(kind: int, data: bytes) -> bytes:
    size = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(size, kind) + data + b"\0" * (-size % 4)


def number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def byte(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=B", value))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def nested(kind: int, *parts: bytes) -> bytes:
    return attribute(kind | NLA_F_NESTED, b"".join(parts))


def attributes(data: bytes) -> Attributes:
    found: Attributes = {}
    offset = 0
    while offset + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, offset)
        if size < _ATTRIBUTE.size:
            break
        found[kind & NLA_TYPE_MASK] = data[offset + _ATTRIBUTE.size : offset + size]
        offset += (size + 3) & ~3
    return found


class Netlink:
    """One request at a time over one socket. It belongs to the namespace in which it was made."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.settimeout(TIMEOUT_S)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def change(self, kind: int, body: bytes, flags: int = 0) -> None:
        """A request that only succeeds or fails."""
        self._send(kind, body, NLM_F_ACK | flags)
        for _ in self._answers():
            pass

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """All objects of a kind: the bodies of the answers."""
        self._send(kind, body, NLM_F_DUMP)
        return list(self._answers())

    def _send(self, kind: int, body: bytes, flags: int) -> None:
        self._sequence += 1
        size = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(size, kind, NLM_F_REQUEST | flags, self._sequence, 0) + body)

    def _answers(self) -> Iterator[bytes]:
        while True:
            for kind, flags, sequence, body in _messages(self._socket.recv(1 << 17)):
                if sequence != self._sequence:
                    continue
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    _raise_if_failed(body, flags)
                    return
                yield body


def _messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    offset = 0
    while offset + _HEADER.size <= len(data):
        size, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
        yield kind, flags, sequence, data[offset + _HEADER.size : offset + size]
        offset += (size + 3) & ~3


def _raise_if_failed(body: bytes, flags: int) -> None:
    code = -int(struct.unpack_from("=i", body)[0])
    if code == 0:
        return
    reason = ""
    if flags & NLM_F_ACK_TLVS:
        # The request's header comes back behind the code; where the kernel explains itself, the rest is capped.
        reason = attributes(body[4 + _HEADER.size :]).get(NLMSGERR_ATTR_MSG, b"").rstrip(b"\0").decode(errors="replace")
        reason = reason or _trailing_reason(body)
    raise OSError(code, f"{os.strerror(code)} ({reason})" if reason else os.strerror(code))


def _trailing_reason(body: bytes) -> str:
    """Where the kernel sent the whole request back, its explanation stands behind it."""
    size = int(_HEADER.unpack_from(body, 4)[0])
    found = attributes(body[4 + ((size + 3) & ~3) :])
    return found.get(NLMSGERR_ATTR_MSG, b"").rstrip(b"\0").decode(errors="replace")
