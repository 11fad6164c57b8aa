"""Tables of rules as values, and the transaction that makes them. Pure."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from virt_netsetup.model import PodNic, Value

Command = dict[str, Any]
Expression = dict[str, Any]
Rule = tuple[str, list[Expression]]


class Chain(Value, frozen=True):
    """Without a hook it is only reached by jumps. One at the ingress belongs to a device."""

    name: str
    hook: str = ""
    priority: int = 0
    kind: str = "nat"
    policy: str = "accept"
    device: str = ""


class Table(Value, frozen=True):
    """A whole table: (chain, expressions) in their order. The counters that its rules name come with it."""

    family: str
    name: str
    chains: tuple[Chain, ...]
    rules: tuple[Rule, ...]

    @property
    def marker(self) -> str:
        """An empty chain whose name tells what the table was made from: the kernel itself remembers the version."""
        content = msgspec.json.encode([self.chains, self.rules], order="deterministic")
        return "version_" + hashlib.sha256(content).hexdigest()[:12]

    def commands(self) -> list[Command]:
        """Replaces whatever the table was before."""
        return [
            {"add": {"table": self._object()}},
            {"delete": {"table": self._object()}},
            {"add": {"table": self._object()}},
            *({"add": {"counter": {**self._member(), "name": name}}} for name in self.counters()),
            *({"add": {"chain": self._chain(chain)}} for chain in (*self.chains, Chain(self.marker))),
            *({"add": {"rule": {**self._member(), "chain": chain, "expr": rule}}} for chain, rule in self.rules),
        ]

    def counters(self) -> list[str]:
        named = [each["counter"] for _, rule in self.rules for each in rule if isinstance(each.get("counter"), str)]
        return list(dict.fromkeys(named))

    def _object(self) -> dict[str, str]:
        return {"family": self.family, "name": self.name}

    def _member(self) -> dict[str, str]:
        return {"family": self.family, "table": self.name}

    def _chain(self, chain: Chain) -> dict[str, Any]:
        described: dict[str, Any] = {**self._member(), "name": chain.name}
        if chain.hook:
            described |= {"type": chain.kind, "hook": chain.hook, "prio": chain.priority, "policy": chain.policy}
        if chain.device:
            described["dev"] = chain.device
        return described


def name_for(nic: PodNic) -> str:
    """Tables of our own: other programs in the Pod may keep theirs under the usual names."""
    return "virtpod_" + nic.name.replace(".", "_").replace("-", "_")


def count(name: str) -> Expression:
    """In a counter that has a name, by which it is found again."""
    return {"counter": name}


def match(left: Any, right: Any, operator: str = "==") -> Expression:
    return {"match": {"op": operator, "left": left, "right": right}}


def field(protocol: str, name: str) -> Expression:
    return {"payload": {"protocol": protocol, "field": name}}


def meta(key: str) -> Expression:
    return {"meta": {"key": key}}


def one_of(*values: Any) -> Any:
    return values[0] if len(values) == 1 else {"set": list(values)}


def prefix(address: str, length: int) -> Expression:
    return {"prefix": {"addr": address, "len": length}}
