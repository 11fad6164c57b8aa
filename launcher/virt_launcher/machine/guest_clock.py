"""The guest's clock after it stood still: set to the node's by the agent, as soon as that answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.ports import Hypervisor

log = get_logger(__name__)

_PAUSE_S = 1.0
_ATTEMPTS = 60


class GuestClock:
    """A guest without an agent keeps its own time: `connected` says whether it has one."""

    def __init__(
        self, hypervisor: Hypervisor, connected: Callable[[], bool], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._hypervisor, self._connected, self._sleep = hypervisor, connected, sleep
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Returns at once. Whoever begins while another still tries leaves it to that one."""
        with self._lock:
            if not self._connected() or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self.set, name="guest-clock", daemon=True)
            self._thread.start()

    def set(self) -> bool:
        """An agent that is away for a moment, as after a move, is waited for like one that does not answer."""
        problem = "its agent is gone"
        for _ in range(_ATTEMPTS):
            if self._connected():
                try:
                    self._hypervisor.set_guest_time(time.time_ns())
                    return True
                except LauncherError as error:
                    problem = str(error)
            self._sleep(_PAUSE_S)
        log.warning("the guest's clock could not be set", error=problem)
        return False
