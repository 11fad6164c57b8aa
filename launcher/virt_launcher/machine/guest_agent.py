"""Asks the guest agent, if there is one: at once when it connects, then ever more rarely.

The first answer is fetched before the agent counts as connected, so that virt-handler writes both in one go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.ports import AgentInfo, Hypervisor
from virt_launcher.machine.state import AgentView

log = get_logger(__name__)

_FIRST_INTERVAL_S = 10.0
_LAST_INTERVAL_S = 120.0


class GuestAgent:
    def __init__(self, hypervisor: Hypervisor) -> None:
        self._hypervisor = hypervisor
        self._listeners: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._connected = False
        self._view = AgentView()

    def on_news(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    @property
    def view(self) -> AgentView:
        with self._wake:
            return self._view

    def channel_is(self, connected: bool) -> None:
        """From each reading of the machine: whether the agent has opened its channel."""
        with self._wake:
            if connected == self._connected:
                return
            self._connected = connected
            if not connected:
                self._view = AgentView()
            self._wake.notify_all()

    def wake(self) -> None:
        """Lets the thread see a stop."""
        with self._wake:
            self._wake.notify_all()

    def run(self, stop: threading.Event) -> None:
        """The body of the polling thread."""
        while not stop.is_set():
            with self._wake:
                self._wake.wait_for(lambda: self._connected or stop.is_set())
            interval = _FIRST_INTERVAL_S
            while self._connected and not stop.is_set():
                self.poll()
                self._sleep(interval, stop)
                interval = min(interval * 2, _LAST_INTERVAL_S)

    def poll(self) -> None:
        """Asks once. News are passed on."""
        try:
            report, about = self._hypervisor.agent_report(), self._about()
        except LauncherError as error:
            log.debug("the guest agent does not answer", error=str(error))
            report, about = self.view.report, self.view.about
        with self._wake:
            if not self._connected:
                return
            news = AgentView(connected=True, report=report, about=about)
            changed, self._view = news != self._view, news
        if changed:
            for listener in self._listeners:
                listener()

    def _about(self) -> AgentInfo:
        """Does not change while it is connected."""
        known = self.view.about
        return known if known.version else self._hypervisor.agent_info()

    def _sleep(self, seconds: float, stop: threading.Event) -> None:
        """Ends early when the agent goes away."""
        with self._wake:
            self._wake.wait_for(lambda: not self._connected or stop.is_set(), seconds)
