"""A guest that stands still because one of its disks failed: let go on again as soon as the disk takes its writes.

QEMU keeps the request that failed and does it again when the machine goes on; if that fails as well, the machine stands
still again at once. So the attempt itself finds out whether there is room again, and the guest never sees an error.
While one is made, the machine still counts as paused: nobody is told of a resume that lasts a millisecond.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.ports import Facts, Hypervisor, State
from virt_launcher.machine.state import MachineView

log = get_logger(__name__)

REASON = "IOError"
FIRST_PAUSE_S = 2.0
LAST_PAUSE_S = 60.0
#: How long the guest must go on for an attempt to count; and for how long for the next failure to be a new story.
SETTLE_S = 0.5
STABLE_S = 60.0
#: One sentence has room for so many.
MAX_NAMED = 8


def words(errors: dict[str, str], disk_targets: tuple[tuple[str, str], ...]) -> str:
    """What is wrong with which volume, for people."""
    volumes = {target: volume for volume, target in disk_targets}
    told = [f"disk {volumes.get(target, target)}: {error}" for target, error in sorted(errors.items())[:MAX_NAMED]]
    return "; ".join(told) or "a disk failed"


def stands_still(facts: Facts | MachineView | None) -> bool:
    return facts is not None and facts.state is State.PAUSED and facts.reason == REASON


class DiskTrouble:
    """`modifying` is the lock of all commands that change the machine; `on_end` is called when the guest goes on."""

    def __init__(
        self, hypervisor: Hypervisor, modifying: Callable[[], AbstractContextManager[None]], on_end: Callable[[], None]
    ) -> None:
        self._hypervisor, self._modifying, self._on_end = hypervisor, modifying, on_end
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._pause_s = FIRST_PAUSE_S
        self._ended_at = -STABLE_S
        self._told: MachineView | None = None
        self._trying = False

    def on_state(self, view: MachineView) -> None:
        """From each change of the machine that was told."""
        if not stands_still(view):
            self._over.set()
            return
        with self._lock:
            self._told = view
            if self._thread is not None and self._thread.is_alive() and not self._over.is_set():
                return
            if time.monotonic() - self._ended_at >= STABLE_S:
                self._pause_s = FIRST_PAUSE_S
            self._over = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._over,), name="disk-trouble", daemon=True)
            self._thread.start()

    def shown(self, view: MachineView) -> MachineView:
        """The machine as it is told while an attempt is made."""
        before = self._told
        if before is None or not self._trying or view.state is not State.RUNNING:
            return view
        return replace(view, state=before.state, reason=before.reason, message=before.message)

    def attempt(self) -> bool:
        """Lets the guest go on. False: it stands still again, for the same reason."""
        with self._modifying():
            if not stands_still(self._hypervisor.facts()):
                return True  # Somebody else was quicker.
            self._trying = True
            try:
                self._hypervisor.resume()
                self._over.wait(SETTLE_S)
                return not stands_still(self._hypervisor.facts())
            finally:
                self._trying = False

    def _run(self, over: threading.Event) -> None:
        while not over.wait(self._pause_s):
            self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)
            try:
                went_on = self.attempt()
            except LauncherError as error:
                log.warning("the guest that stands still because of a disk cannot go on now", error=str(error))
                continue
            if not went_on:
                log.info("the disk still fails, the guest stands still", next_attempt_s=self._pause_s)
            elif not over.is_set():
                self._ended_at = time.monotonic()
                log.info("the disk takes writes again, the guest goes on")
                self._on_end()
                return
