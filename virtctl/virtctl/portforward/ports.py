"""`[protocol/]local[:target]`."""

from __future__ import annotations

from dataclasses import dataclass

import click

_PROTOCOLS = ("tcp", "udp")


@dataclass(frozen=True, slots=True)
class Forward:
    protocol: str
    local: int
    remote: int

    def __str__(self) -> str:
        return f"{self.protocol} {self.local} to {self.remote}"


def parse_port(text: str) -> Forward:
    protocol, slash, ports = text.rpartition("/")
    protocol = protocol.lower() if slash else "tcp"
    if protocol not in _PROTOCOLS:
        raise click.UsageError(f"{text!r}: the protocol must be tcp or udp")
    local, colon, remote = ports.partition(":")
    first = _number(local, text, lowest=0)
    return Forward(protocol, first, _number(remote if colon else local, text, lowest=1))


def _number(word: str, text: str, lowest: int) -> int:
    if not word.isdecimal() or not lowest <= int(word) <= 65535:
        raise click.UsageError(f"{text!r} is not a port: write [protocol/]local[:target], e.g. 8080 or udp/5353:53")
    return int(word)
