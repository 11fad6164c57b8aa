"""The way between two nodes, cut for the bytes of a move alone: packets vanish, as when a switch dies."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from .engine import Engine
from .segment import node_namespaces

_TABLE = "e2e_cut"
#: Arrivals of machines (`virt_handler.moves`), in whichever direction.
_PORTS = "61000-61255"
_RULES = "".join(
    f"chain {hook} {{ type filter hook {hook} priority -300;"
    f" tcp dport {_PORTS} counter drop; tcp sport {_PORTS} counter drop; }}\n"
    for hook in ("input", "output", "forward")
)


def _nft(namespace: str, text: str) -> None:
    command = ["ip", "netns", "exec", namespace, "nft", "-f", "-"]
    subprocess.run(command, input=text, text=True, check=True, timeout=30)


@contextmanager
def cut(engine: Engine, node: str) -> Iterator[None]:
    namespace = node_namespaces(engine)[node]
    _nft(namespace, f"table inet {_TABLE} {{ {_RULES} }}")
    try:
        yield
    finally:
        _nft(namespace, f"delete table inet {_TABLE}")
