"""Calls to launchers, beside the loop: its workers are everybody's, so none of them waits for an answer.

A launcher has at most one call of a kind under way. One that hangs costs a thread or two of its own, and nobody's time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from virt_core.runtime.logs import get_logger
from virt_handler.loop.sessions import Session

log = get_logger(__name__)


class Errands:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[tuple[str, str]] = set()

    def start(self, session: Session, kind: str, body: Callable[[], object]) -> bool:
        """Runs `body` in a thread of its own. False: the last one of this kind is not back yet."""
        errand = (session.pod_uid, kind)
        with self._lock:
            if errand in self._under_way:
                return False
            self._under_way.add(errand)
        name = f"{kind}-{session.pod_uid}"
        try:
            threading.Thread(target=self._run, args=(errand, body), name=name, daemon=True).start()
        except BaseException:
            self._back(errand)
            raise
        return True

    def _run(self, errand: tuple[str, str], body: Callable[[], object]) -> None:
        try:
            body()
        except Exception:
            log.exception("a call to a launcher failed", pod=errand[0], kind=errand[1])
        finally:
            self._back(errand)

    def _back(self, errand: tuple[str, str]) -> None:
        with self._lock:
            self._under_way.discard(errand)
