"""The version handshake: the first call on a connection settles which version of the contract both sides speak."""

from __future__ import annotations

from collections.abc import Iterable

from virt_core.rpc.status import failed_precondition

#: What this build speaks, of all three contracts.
PROTOCOL_VERSIONS = [1]


def negotiate(theirs: Iterable[int], ours: Iterable[int] = PROTOCOL_VERSIONS, *, peer: str = "the other side") -> int:
    """The highest version that both speak. Raises RpcFailure that names both lists."""
    offered, known = set(theirs), set(ours)
    common = offered & known
    if not common:
        versions = f"{peer} speaks {_list(offered)}, this side {_list(known)}"
        raise failed_precondition(f"no common protocol version: {versions}; upgrade the older one")
    return max(common)


def _list(versions: set[int]) -> str:
    return ", ".join(str(v) for v in sorted(versions)) or "none"
