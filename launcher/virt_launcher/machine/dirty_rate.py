"""How fast the guest changes its memory: what a move of the machine has to keep up with.

QEMU looks at a sample of pages before and after a period. One measurement at a time; who asks meanwhile, or a moment
later, gets the same answer. While the machine moves, the move itself tells the rate: libvirt would keep another
measurement waiting until it is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from virt_launcher.errors import LauncherError, UnavailableError
from virt_launcher.hypervisor.ports import Facts, Hypervisor

PERIOD_S = 1
_LOOK_EVERY_S = 0.1
#: Beyond the period: QEMU reads the sampled pages twice.
_SLACK_S = 2.0
_FRESH_S = 3.0
_MEASURED = 2
_MIB = 1 << 20


class DirtyRate:
    """`require` says that the machine runs; `moving` is the rate that a move under way tells, None: there is none."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        require: Callable[[], Facts],
        moving: Callable[[], int | None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._hypervisor, self._require, self._moving = hypervisor, require, moving
        self._monotonic, self._sleep = monotonic, sleep
        self._lock = threading.Lock()
        self._last: tuple[float, int] | None = None

    def measure(self) -> int:
        """Bytes a second."""
        self._require()
        if (told := self._moving()) is not None:
            return told
        if not self._lock.acquire(timeout=PERIOD_S + _SLACK_S):
            raise UnavailableError("the rate at which the guest changes its memory is still being measured")
        try:
            if self._last is None or self._monotonic() - self._last[0] > _FRESH_S:
                rate = self._now()
                self._last = (self._monotonic(), rate)
            return self._last[1]
        finally:
            self._lock.release()

    def _now(self) -> int:
        self._hypervisor.start_dirty_rate(PERIOD_S)
        deadline = self._monotonic() + PERIOD_S + _SLACK_S
        self._sleep(PERIOD_S)
        while True:
            stats = self._hypervisor.stats()
            if stats.get("dirtyrate.calc_status") == _MEASURED:
                return int(stats.get("dirtyrate.megabytes_per_second", 0)) * _MIB
            if self._monotonic() > deadline:
                raise LauncherError("QEMU did not measure in time how fast the guest changes its memory")
            self._sleep(_LOOK_EVERY_S)
