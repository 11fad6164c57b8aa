"""What this node remembers of the moves that left it: how each one went, and how fast the way was.

In memory alone: it is for forecasts and for people who look on, and a new process learns it anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

from virt_protos.launcher.v1 import launcher_pb2 as pb

MAX_MOVES = 256
#: The best of the last so many is what the way carries: one that had little to send, or a limit, says nothing of it.
_SPEEDS = 8
_US = 1_000_000
#: Less than that is over before its speed can be told.
_LEAST_BYTES = 4 << 20
#: No network that we know of carries more: what a launcher says beyond that is made up.
_MOST = 1 << 40
#: Nor does a guest stand still for longer, unless something went wrong that a forecast is not about.
_LONGEST_MS = 10_000
#: In the other modes the guest stands still for another reason.
_PRE_COPY = "PreCopy"


class Journal:
    """Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The last move of each machine, and the best speed seen of it.
        self._moves: OrderedDict[str, tuple[pb.Move, int]] = OrderedDict()
        self._speeds: deque[int] = deque(maxlen=_SPEEDS)
        self._pauses: deque[int] = deque(maxlen=_SPEEDS)

    def note(self, vmi_uid: str, move: pb.Move) -> None:
        """Called with each news of a move, in any order and as often as it comes."""
        if not move.uid:
            return
        with self._lock:
            known, best = self._moves.get(vmi_uid, (None, 0))
            if known is not None and known.uid == move.uid and known.ended_us:
                return
            best = max(best if known is not None and known.uid == move.uid else 0, move.bytes_per_second)
            self._moves[vmi_uid] = (move, best)
            self._moves.move_to_end(vmi_uid)
            while len(self._moves) > MAX_MOVES:
                self._moves.popitem(last=False)
            if move.ended_us and not move.failed:
                self._learn(move, best)

    def _learn(self, move: pb.Move, best: int) -> None:
        if move.processed_bytes >= _LEAST_BYTES:
            self._speeds.append(min(max(best, _mean(move)), _MOST))
        if move.mode == _PRE_COPY and 0 < move.downtime_ms <= _LONGEST_MS:
            self._pauses.append(move.downtime_ms)

    def of(self, vmi_uid: str, job_uid: str = "") -> pb.Move | None:
        with self._lock:
            found, _ = self._moves.get(vmi_uid, (None, 0))
        return found if found is not None and job_uid in ("", found.uid) else None

    def speed(self) -> int:
        """Bytes a second that moves from this node came to; 0: there was none yet."""
        with self._lock:
            return max(self._speeds, default=0)

    def pause_ms(self) -> int:
        """How long guests stood still that left this node, as a rule; 0: there was none yet."""
        with self._lock:
            return sorted(self._pauses)[len(self._pauses) // 2] if self._pauses else 0


def _mean(move: pb.Move) -> int:
    took_us = move.ended_us - move.started_us
    return int(move.processed_bytes * _US / took_us) if took_us > 0 else 0
