"""From libvirt's hints to the machine's whole state.

Callbacks of libvirt only raise a flag; one worker reads the state and hands it on. Many hints in a row become one
reading, the newest state wins, and libvirt's own thread never waits for anybody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.ports import Change, State
from virt_launcher.machine.disk_trouble import stands_still
from virt_launcher.machine.monitor import PANIC_SENTENCE
from virt_launcher.machine.state import MachineView

log = get_logger(__name__)

_RETRY_S = 1.0
_BITTEN = ("WatchdogFired", "the guest did not feed its watchdog in time, so the watchdog's action was taken")
_GIVEN_UP = (
    "GuestAgentGivenUp",
    "the guest agent sent something that libvirt does not take, and is asked again when it has been started anew",
)
#: What libvirt tells that people should read at once, whatever becomes of the machine.
_REMARKS = {
    Change.PANIC: ("GuestPanicked", PANIC_SENTENCE),
    Change.WATCHDOG: _BITTEN,
    Change.WATCHDOG_END: _BITTEN,
}


class Outlet(Protocol):
    """Where states and remarks go: the notify client."""

    def publish(self, view: MachineView) -> None: ...

    def record(self, kind: str, reason: str, message: str) -> None: ...


class EventWorker:
    def __init__(self, read: Callable[[], MachineView], outlet: Outlet) -> None:
        self._read = read
        self._outlet = outlet
        self._hints = threading.Event()
        self._listeners: list[Callable[[MachineView], None]] = []
        self._last: MachineView | None = None

    def on_state(self, listener: Callable[[MachineView], None]) -> None:
        self._listeners.append(listener)

    def poke(self, change: Change | None = None) -> None:
        """Something may have changed. Never blocks."""
        if change in _REMARKS:
            self._outlet.record("Warning", *_REMARKS[change])
        self._hints.set()

    def run(self, stop: threading.Event) -> None:
        """The body of the worker thread."""
        while not stop.is_set():
            self._hints.wait()
            if stop.is_set():
                return
            self._hints.clear()
            try:
                self.handle()
            except LauncherError as error:
                log.warning("the machine's state cannot be read now", error=str(error))
                self._try_again(stop)
            except Exception:
                # A mistake of ours; the guest must not pay for it with its life.
                log.exception("the machine's state could not be passed on")
                self._try_again(stop)

    def _try_again(self, stop: threading.Event) -> None:
        stop.wait(_RETRY_S)
        self._hints.set()

    def handle(self) -> None:
        view = self._read()
        if view == self._last or (self._last is None and view.state is State.ABSENT):
            return
        self._remark(view)
        self._last = view
        self._outlet.publish(view)
        for listener in self._listeners:
            listener(view)

    def _remark(self, view: MachineView) -> None:
        """What people should read in `kubectl describe`, once for each transition."""
        if view.agent.given_up and not (self._last is not None and self._last.agent.given_up):
            self._outlet.record("Warning", *_GIVEN_UP)
        before = (self._last.state, self._last.reason) if self._last is not None else None
        if (view.state, view.reason) == before:
            return
        log.info("the machine's state changed", state=view.state.value, reason=view.reason, cause=view.message)
        if stands_still(view):
            self._outlet.record("Warning", "IOerror", f"the guest is paused: {view.message}")
