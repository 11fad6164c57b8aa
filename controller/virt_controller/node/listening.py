"""Whether the silence of a node says something: only when somebody has listened for long enough.

After our start, a change of the leader or a pause of the whole machine every heartbeat is old, although nothing is
wrong. So a node that was not heard lately has the whole time from the moment on from which we listen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

HEARTBEAT_LIMIT_S = 300.0
RECHECK_S = 60.0
#: Longer than between two looks of ours, and than between two heartbeats.
_LATELY_S = 2 * RECHECK_S


@dataclass(slots=True)
class _Node:
    since: datetime
    looked: datetime
    heard: bool = False


class Listening:
    """Remembers for each node since when we listen without a pause, and whether it was heard in that time."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def patience_s(self, name: str, age_s: float, now: datetime) -> float:
        """For how much longer a node whose last heartbeat is so old may be silent; 0: it has been for too long."""
        node = self._nodes.get(name)
        if node is None or (now - node.looked).total_seconds() > _LATELY_S:
            node = self._nodes[name] = _Node(since=now, looked=now)
        node.looked = now
        node.heard = node.heard or age_s < _LATELY_S
        silent_s = age_s if node.heard else min(age_s, (now - node.since).total_seconds())
        return max(HEARTBEAT_LIMIT_S - silent_s, 0.0)

    def forget(self, name: str) -> None:
        self._nodes.pop(name, None)
