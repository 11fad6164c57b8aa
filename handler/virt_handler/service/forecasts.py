"""What a move would take, for virt-api: asks the launcher for figures, and has `decisions.forecast` make sense of them.

To measure how fast a guest writes costs the guest something, so one measurement serves for some seconds, whoever asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from virt_core.apis.moveview import CONVERGES, UNKNOWN, WILL_NOT, WITH_HELP
from virt_handler.decisions.forecast import Case, Forecast, foresee
from virt_handler.figures.table import parsed
from virt_handler.moves.journal import Journal
from virt_handler.pods.launchers import Launcher
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2 as pb

FRESH_S = 10.0
_KIB = 1024
_MAX_KEPT = 1024
_VERDICTS = {
    CONVERGES: pb.CONVERGENCE_YES,
    WITH_HELP: pb.CONVERGENCE_HELPED,
    WILL_NOT: pb.CONVERGENCE_NO,
    UNKNOWN: pb.CONVERGENCE_UNKNOWN,
}


class Forecasts:
    """Thread safe."""

    def __init__(self, journal: Journal, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.journal, self._monotonic = journal, monotonic
        self._lock = threading.Lock()
        self._rates: dict[str, tuple[float, int]] = {}

    def make(
        self, launcher: Launcher, domain: launcher_pb2.Domain, request: pb.ForecastMoveRequest
    ) -> pb.ForecastMoveResponse:
        """Raises RpcFailure."""
        case = self._case(launcher, domain, request)
        return _answer(case, foresee(case))

    def _case(self, launcher: Launcher, domain: launcher_pb2.Domain, request: pb.ForecastMoveRequest) -> Case:
        stats, limit, known = parsed(launcher.get_stats()), request.bandwidth_limit, self.journal.speed()
        return Case(
            memory=_memory(stats, domain.memory_bytes),
            disks=_allocated(stats, {domain.disk_targets[name] for name in _known(request.copied_volumes, domain)}),
            dirty=self._rate(request.vmi.uid, launcher),
            speed=min(limit, known) if limit and known else limit or known,
            configured=bool(limit) and (not known or limit <= known),
            max_downtime_s=request.max_downtime_ms / 1000,
            usual_downtime_s=self.journal.pause_ms() / 1000,
            auto_converge=request.auto_converge,
            post_copy=request.post_copy,
            disruption=request.workload_disruption,
            timeout_per_gb=request.completion_timeout_per_gib,
        )

    def _rate(self, vmi_uid: str, launcher: Launcher) -> int:
        now = self._monotonic()
        with self._lock:
            self._rates = {uid: known for uid, known in self._rates.items() if now - known[0] < FRESH_S}
            if vmi_uid in self._rates:
                return self._rates[vmi_uid][1]
        rate = launcher.get_dirty_rate()
        with self._lock:
            if len(self._rates) < _MAX_KEPT:
                self._rates[vmi_uid] = (self._monotonic(), rate)
        return rate


def _known(volumes: Iterable[str], domain: launcher_pb2.Domain) -> list[str]:
    return [name for name in volumes if name in domain.disk_targets]


def _memory(stats: dict[str, Any], whole: int) -> int:
    """What the guest never touched is not there, and need not be sent."""
    told = stats.get("memory")
    rss = told.get("rss") if isinstance(told, dict) else None
    resident = rss * _KIB if isinstance(rss, int) and rss > 0 else whole
    return min(resident, whole) if whole else resident


def _allocated(stats: dict[str, Any], targets: set[str]) -> int:
    """Of what is below an overlay nothing is copied; it would come after it, by the same name."""
    blocks, found = stats.get("block"), dict[str, Any]()
    for each in blocks if isinstance(blocks, list) else ():
        if isinstance(each, dict) and isinstance(name := each.get("name"), str) and name in targets:
            found.setdefault(name, each.get("allocation", 0))
    return sum(size for size in found.values() if isinstance(size, int) and size > 0)


def _answer(case: Case, found: Forecast) -> pb.ForecastMoveResponse:
    return pb.ForecastMoveResponse(
        convergence=_VERDICTS[found.verdict],
        message=found.message,
        memory_bytes=case.memory,
        disk_bytes=case.disks,
        dirty_bytes_per_second=case.dirty,
        bandwidth_bytes_per_second=case.speed,
        bandwidth_configured=case.configured,
        expected_ms=round(found.seconds * 1000),
        expected_downtime_ms=round(found.downtime_s * 1000),
    )
