"""Asks the launchers of this node for their machines' statistics when somebody reads the metrics.

All at once and within one deadline: a launcher that hangs costs nobody else's figures, and is left out until it has
answered its last call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from virt_core.rpc.status import RpcFailure
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Family
from virt_handler.decisions.moving import figures_of
from virt_handler.decisions.silence import Verdict
from virt_handler.figures.table import PREFIX, ROWS, Figures, Row, label_names, parsed, samples
from virt_handler.loop.errands import Errands
from virt_handler.loop.roster import Sessions
from virt_handler.loop.sessions import Session
from virt_handler.pods.launchers import Launcher
from virt_handler.service import answers

log = get_logger(__name__)

#: Within the time that the metrics' server gives a request.
DEADLINE_S = 6.0
#: A guest's filesystems are asked for by its agent, which has other things to do.
FILESYSTEMS_EVERY_S = 60.0
T = TypeVar("T")
_Filesystems = tuple[tuple[str, str, str, int, int], ...]


class Collector:
    def __init__(self, node: str, sessions: Sessions, errands: Errands, clock: Clock) -> None:
        self._node, self._sessions, self._errands, self._clock = node, sessions, errands, clock
        self._lock = threading.Lock()
        self._filesystems: dict[str, tuple[float, _Filesystems]] = {}

    def collect(self) -> list[Family]:
        """For the registry of metrics."""
        values: dict[Row, list[tuple[tuple[str, ...], float]]] = {row: [] for row in ROWS}
        for found in sorted(self._ask_all(), key=lambda each: (each.namespace, each.name)):
            for row, labels, number in samples(self._node, found):
                values[row].append((labels, number))
        return [Family(PREFIX + row.name, row.help, row.kind, label_names(row), values[row]) for row in ROWS]

    def _ask_all(self) -> list[Figures]:
        waiting = [self._begin(session) for session in self._sessions if _answers(session)]
        self._forget()
        deadline = self._clock.monotonic() + DEADLINE_S
        found: list[Figures] = []
        for answer in waiting:
            if answer is not None and answer.done.wait(max(deadline - self._clock.monotonic(), 0.0)):
                found += answer.found
        return found

    def _begin(self, session: Session) -> _Answer | None:
        answer = _Answer()

        def ask() -> None:
            try:
                answer.found = self._figures(session)
            except RpcFailure as failure:
                log.debug("no figures of a machine", vmi=session.key, error=str(failure))
            finally:
                answer.done.set()

        return answer if self._errands.start(session, "figures", ask) else None

    def _figures(self, session: Session) -> list[Figures]:
        launcher, view = session.launcher, session.view()
        if launcher is None or view.domain is None:
            return []
        targets = {target: volume for volume, target in view.domain.disk_targets.items()}
        taps = {nic.tap: nic.name for nic in view.report.interfaces} if view.report is not None else {}
        return [
            Figures(
                namespace=session.record.namespace,
                name=session.record.name,
                stats=parsed(launcher.get_stats()),
                drives=targets,
                nics=taps,
                filesystems=self._filesystems_of(session, launcher) if view.domain.agent_connected else (),
                dirty_rate=_or_none(launcher.get_dirty_rate),
                move=figures_of(view.domain.move),
            )
        ]

    def _filesystems_of(self, session: Session, launcher: Launcher) -> _Filesystems:
        now = self._clock.monotonic()
        with self._lock:
            asked, known = self._filesystems.get(session.pod_uid, (now - FILESYSTEMS_EVERY_S, ()))
        if now - asked < FILESYSTEMS_EVERY_S:
            return known
        listed = answers.filesystems(_or_none(launcher.get_filesystems) or [])
        found = tuple((f.disk_name, f.mount_point, f.type, f.used_bytes, f.total_bytes) for f in listed)
        with self._lock:
            self._filesystems[session.pod_uid] = (now, found)
        return found

    def _forget(self) -> None:
        """What is kept goes with its session."""
        with self._lock:
            for pod_uid in self._filesystems.keys() - {session.pod_uid for session in self._sessions}:
                del self._filesystems[pod_uid]


class _Answer:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.found: list[Figures] = []


def _answers(session: Session) -> bool:
    return session.launcher is not None and session.runs() and session.pulse.verdict() is Verdict.FINE


def _or_none(call: Callable[[], T]) -> T | None:
    """What only some machines can tell: an old launcher, a guest whose agent is busy."""
    try:
        return call()
    except RpcFailure:
        return None
