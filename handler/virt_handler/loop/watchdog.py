"""Asks launchers that have been silent for a while whether they are still there. Never waits for the answer."""

from __future__ import annotations

from typing import Any

from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.logs import get_logger
from virt_handler.decisions.silence import Verdict
from virt_handler.loop.pulse import PING_DEADLINE_S, Call, schedule_of
from virt_handler.loop.sessions import Session
from virt_handler.pods.launchers import SILENCE, Launcher

log = get_logger(__name__)


class Watchdog:
    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue

    def look(self, session: Session) -> float | None:
        """Pings if it is time to. Seconds until the next look; None while there is nobody to ask."""
        launcher = session.launcher
        if launcher is None or session.is_gone:
            return None
        wait_s = session.pulse.wait_s()
        if wait_s > 0:
            return wait_s
        call = session.pulse.began(schedule_of(launcher.pid))
        try:
            future = launcher.ping(PING_DEADLINE_S)
        except ValueError:
            return None  # Closed meanwhile: the launcher has ended, which is an event.
        future.add_done_callback(lambda done: self._done(session, launcher, call, done))
        return PING_DEADLINE_S * 2

    def _done(self, session: Session, launcher: Launcher, call: Call, done: Any) -> None:
        """In a thread of gRPC."""
        before = session.pulse.verdict()
        if not done.cancelled() and done.code() not in SILENCE:
            session.pulse.beat()
        else:
            session.pulse.missed(call, schedule_of(launcher.pid))
        after = session.pulse.verdict()
        if after is not Verdict.FINE:
            log.warning("a launcher does not answer", vmi=session.key, silent_s=round(session.pulse.silent_s()))
        if after is not before:
            self._queue.add(session.key)
