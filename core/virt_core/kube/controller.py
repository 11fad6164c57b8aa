"""The loop of every controller: take a key, bring its object closer to what is wanted, forget or retry.

`reconcile(key)` returns None when all is well, `Result(requeue_after_s=…)` to be called again later, or raises: then
the key comes back after a growing delay. `TerminalError` says that trying again is useless until the object changes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from virt_core.kube.errors import ApiError, Conflict
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Counter, Histogram

RECONCILES = Counter("virt_reconciles_total", "Reconciliations by controller and result.", ("controller", "result"))
DURATION = Histogram("virt_reconcile_seconds", "Time spent in one reconciliation.", ("controller",))

#: How long running reconciliations may take to end after a stop.
_JOIN_S = 10.0
#: Workers look at the stop at least this often, even if nobody shuts the queue down.
_GET_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Result:
    requeue_after_s: float = 0.0


class TerminalError(Exception):
    """Nothing to gain from a retry: log once and wait for the next change of the object."""


class Synced(Protocol):
    def has_synced(self) -> bool: ...


class Controller:
    def __init__(
        self,
        name: str,
        queue: WorkQueue,
        reconcile: Callable[[str], Result | None],
        workers: int = 2,
        informers: Sequence[Synced] = (),
    ) -> None:
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._workers = workers
        self._informers = informers
        self._log = get_logger(__name__, controller=name)
        self._crash: BaseException | None = None

    def run(self, stop: threading.Event) -> None:
        """Waits for its informers, then works until the stop. Raises what killed a worker."""
        if not self._wait_synced(stop):
            return
        ended = threading.Event()
        names = [f"{self.name}-{i}" for i in range(self._workers)]
        threads = [threading.Thread(target=self._work, args=(stop, ended), name=n, daemon=True) for n in names]
        for thread in threads:
            thread.start()
        while not stop.is_set() and not ended.is_set():
            stop.wait(0.5)
        self.queue.shutdown()
        deadline = time.monotonic() + _JOIN_S
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        if self._crash is not None:
            raise self._crash

    def _wait_synced(self, stop: threading.Event) -> bool:
        clock = SystemClock()
        while not all(informer.has_synced() for informer in self._informers):
            if clock.wait(stop, 0.02):
                return False
        return True

    def _work(self, stop: threading.Event, ended: threading.Event) -> None:
        try:
            while not stop.is_set():
                key = self.queue.get(_GET_TIMEOUT_S)
                if key is not None:
                    self.process(key)
                elif self.queue.is_shutdown():
                    return
        except BaseException as error:
            self._crash = error
        finally:
            ended.set()

    def process(self, key: str) -> None:
        """One reconciliation, with all that follows from its outcome."""
        started = time.perf_counter()
        try:
            result = self._reconcile(key)
        except TerminalError as error:
            self._log.error("gave up until the object changes", key=key, error=str(error))
            self._finish(key, "terminal")
        except Exception as error:
            self._retry(key, error)
        else:
            self._finish(key, "ok")
            if result is not None and result.requeue_after_s > 0:
                self.queue.add_after(key, result.requeue_after_s)
        finally:
            DURATION.observe(time.perf_counter() - started, self.name)
            self.queue.done(key)

    def _finish(self, key: str, result: str) -> None:
        self.queue.forget(key)
        RECONCILES.inc(self.name, result)

    def _retry(self, key: str, error: Exception) -> None:
        failures = self.queue.failures(key)
        if isinstance(error, Conflict):
            # Somebody else wrote first; the informer will show it to us. Normal, so no noise.
            self._log.debug("conflict, trying again", key=key)
        elif isinstance(error, ApiError):
            self._log.warning("the API refused, trying again", key=key, error=str(error), failures=failures)
        else:
            self._log.error("reconcile failed, trying again", key=key, failures=failures, exc_info=error)
        RECONCILES.inc(self.name, "retry")
        self.queue.add_rate_limited(key)
