"""A table of NAT rules as a value, and the transaction that makes it. Pure."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from virt_netsetup.model import Value

Command = dict[str, Any]


class Chain(Value, frozen=True):
    name: str
    hook: str = ""
    priority: int = 0


class Table(Value, frozen=True):
    """A whole table of NAT rules: (chain, expressions) in their order."""

    family: str
    name: str
    chains: tuple[Chain, ...]
    rules: tuple[tuple[str, list[dict[str, Any]]], ...]

    @property
    def marker(self) -> str:
        """An empty chain whose name tells what the table was made from: the kernel itself remembers the version."""
        chains = [(chain.name, chain.hook, chain.priority) for chain in self.chains]
        content = msgspec.json.encode([chains, self.rules], order="deterministic")
        return "version_" + hashlib.sha256(content).hexdigest()[:12]

    def commands(self) -> list[Command]:
        """One transaction that replaces whatever the table was before."""
        return [
            {"add": {"table": self._object()}},
            {"delete": {"table": self._object()}},
            {"add": {"table": self._object()}},
            *({"add": {"chain": self._chain(chain)}} for chain in (*self.chains, Chain(self.marker))),
            *({"add": {"rule": {**self._member(), "chain": chain, "expr": rule}}} for chain, rule in self.rules),
        ]

    def _object(self) -> dict[str, str]:
        return {"family": self.family, "name": self.name}

    def _member(self) -> dict[str, str]:
        return {"family": self.family, "table": self.name}

    def _chain(self, chain: Chain) -> dict[str, Any]:
        described: dict[str, Any] = {**self._member(), "name": chain.name}
        if chain.hook:
            described |= {"type": "nat", "hook": chain.hook, "prio": chain.priority, "policy": "accept"}
        return described
