"""Commands in the guest, by its agent: begun, and watched until they end or their time is up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from virt_core.runtime.record import record
from virt_launcher.errors import LauncherError, WrongStateError
from virt_launcher.hypervisor.ports import Facts, GuestExit, Hypervisor, State

#: Commands that did not end in time go on in the guest. It must not collect them without end.
MAX_RUNNING = 4
_FIRST_LOOK_S = 0.02
_LAST_LOOK_S = 0.5


@record(frozen=True, slots=True)
class Result:
    exit_code: int
    output: str = ""


class GuestCommands:
    """`require` says that the machine runs."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        require: Callable[[], Facts],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._hypervisor, self._require = hypervisor, require
        self._monotonic, self._sleep = monotonic, sleep
        self._lock = threading.Lock()
        self._running: set[int] = set()

    def ping(self, timeout_s: float) -> None:
        """Returns when the agent answers. A guest that somebody paused can not: that is no failure of the guest."""
        facts = self._require()
        if facts.state is State.PAUSED and facts.reason == "User":
            return
        self._hypervisor.ping_agent(timeout_s)

    def run(self, path: str, arguments: Sequence[str], timeout_s: float) -> Result:
        """LauncherError when the command can not be started or does not end in time."""
        deadline = self._monotonic() + timeout_s
        if self._require().state is State.PAUSED:
            raise WrongStateError("the machine is paused: no command runs in it")
        number = self._begin(path, arguments)
        ended = self._wait(number, deadline)
        if ended is None:
            raise LauncherError(f"{path} did not end within {timeout_s:g} s; it goes on in the guest")
        return Result(ended.exit_code, ended.output)

    def _begin(self, path: str, arguments: Sequence[str]) -> int:
        with self._lock:
            self._forget_ended()
            if len(self._running) >= MAX_RUNNING:
                raise WrongStateError(
                    f"{len(self._running)} earlier commands still run in the guest; no other is begun"
                )
            number = self._hypervisor.start_in_guest(path, arguments)
            self._running.add(number)
        return number

    def _wait(self, number: int, deadline: float) -> GuestExit | None:
        pause = _FIRST_LOOK_S
        while True:
            ended = self._hypervisor.exit_in_guest(number)
            if ended is not None:
                with self._lock:
                    self._running.discard(number)
                return ended
            left = deadline - self._monotonic()
            if left <= 0:
                return None
            self._sleep(min(pause, left))
            pause = min(pause * 2, _LAST_LOOK_S)

    def _forget_ended(self) -> None:
        """The agent keeps the end of a command until somebody asks for it, and knows none from before a reboot."""
        if len(self._running) < MAX_RUNNING:
            return
        for number in sorted(self._running):
            try:
                ended = self._hypervisor.exit_in_guest(number) is not None
            except WrongStateError:
                raise
            except LauncherError:
                ended = True  # It is not known any more.
            if ended:
                self._running.discard(number)
