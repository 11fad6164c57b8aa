"""A question to a name server, and what it answers: as much of DNS as tests need."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import struct

_TYPES = {"A": 1, "PTR": 12, "AAAA": 28, "SRV": 33}


class NoAnswer(OSError):
    """Nothing came in time, or a refusal."""


def resolve(server: str, name: str, kind: str = "A", *, within_s: float = 2.0) -> list[str]:
    """The values of all records of the kind; none when the name has none. Raises NoAnswer."""
    number = secrets.token_bytes(2)
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.rstrip(".").split("."))
    question = labels + b"\0" + struct.pack("!HH", _TYPES[kind], 1)
    with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(within_s)
        try:
            asking.connect((server, 53))
            asking.send(number + struct.pack("!HHHHH", 0x0100, 1, 0, 0, 0) + question)
            answer = asking.recv(4096)
        except OSError as error:
            raise NoAnswer(f"{server} did not answer about {name}: {error}") from error
    assert answer[:2] == number
    code = answer[3] & 0x0F
    if code not in (0, 3):
        raise NoAnswer(f"{server} refused to answer about {name}: code {code}")
    return _values(answer, 12 + len(question), struct.unpack("!H", answer[6:8])[0], _TYPES[kind])


def _values(answer: bytes, at: int, count: int, wanted: int) -> list[str]:
    found = []
    for _ in range(count):
        _, at = _name(answer, at)
        kind, _, _, length = struct.unpack("!HHIH", answer[at : at + 10])
        at += 10
        if kind == wanted:
            found.append(_value(answer, at, length, kind))
        at += length
    return found


def _value(answer: bytes, at: int, length: int, kind: int) -> str:
    if kind in (_TYPES["A"], _TYPES["AAAA"]):
        return str(ipaddress.ip_address(answer[at : at + length]))
    if kind == _TYPES["SRV"]:
        return f"{struct.unpack('!H', answer[at + 4 : at + 6])[0]} {_name(answer, at + 6)[0]}"
    return _name(answer, at)[0]


def _name(answer: bytes, at: int) -> tuple[str, int]:
    """A name, and where it ends; it may point to another place for its rest."""
    parts, end = [], 0
    while (size := answer[at]) != 0:
        if size & 0xC0:
            end = end or at + 2
            at = struct.unpack("!H", answer[at : at + 2])[0] & 0x3FFF
            continue
        parts.append(answer[at + 1 : at + 1 + size].decode())
        at += 1 + size
    return ".".join(parts), end or at + 1
