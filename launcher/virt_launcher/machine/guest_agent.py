"""Asks the guest agent, if there is one: at once when it connects, then ever more rarely.

The first answer is fetched before the agent counts as connected, so that virt-handler writes both in one go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import AgentGivenUpError, LauncherError
from virt_launcher.hypervisor.ports import AgentInfo, Change, Hypervisor
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
        #: Rises with each change of the channel: an agent that starts anew may be there again before anybody looks.
        self._epoch = 0
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
            self._epoch += 1
            if not connected:
                self._view = AgentView()
            self._wake.notify_all()

    def machine_changed(self, change: Change) -> None:
        """From libvirt: the channel was opened or closed, perhaps both by now. Who is there next is asked anew."""
        if change is Change.AGENT:
            self.channel_is(False)

    def wake(self) -> None:
        """Lets the thread see a stop."""
        with self._wake:
            self._wake.notify_all()

    def run(self, stop: threading.Event) -> None:
        """The body of the polling thread."""
        while not stop.is_set():
            with self._wake:
                self._wake.wait_for(lambda: self._connected or stop.is_set())
                epoch = self._epoch
            interval = _FIRST_INTERVAL_S
            while self._epoch == epoch and not stop.is_set():
                self.poll()
                self._sleep(interval, epoch, stop)
                interval = min(interval * 2, _LAST_INTERVAL_S)

    def poll(self) -> None:
        """Asks once. News are passed on."""
        epoch = self._epoch
        news = self._ask()
        with self._wake:
            if not self._connected or self._epoch != epoch:
                return  # Who answered is gone.
            changed, self._view = news != self._view, news
        if changed:
            for listener in self._listeners:
                listener()

    def _ask(self) -> AgentView:
        try:
            report = self._hypervisor.agent_report()
        except AgentGivenUpError:
            # Its channel is open, but nobody will ever listen there again: it counts as one that is not there.
            return AgentView(given_up=True)
        except LauncherError as error:
            log.debug("the guest agent does not answer", error=str(error))
            return AgentView(connected=True, report=self.view.report, about=self.view.about)
        return AgentView(connected=True, report=report, about=self._about())

    def _about(self) -> AgentInfo:
        """Does not change while it is connected. An agent that does not tell it may still tell of its guest."""
        known = self.view.about
        if known.version:
            return known
        try:
            return self._hypervisor.agent_info()
        except LauncherError as error:
            log.debug("the guest agent does not tell its version", error=str(error))
            return known

    def _sleep(self, seconds: float, epoch: int, stop: threading.Event) -> None:
        """Ends early when the agent goes away."""
        with self._wake:
            self._wake.wait_for(lambda: self._epoch != epoch or stop.is_set(), seconds)
