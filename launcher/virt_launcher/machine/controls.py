"""What people do to the running guest beside starting and stopping it.

Reboot, reset, freeze, look at its screen, ask its agent. What the guest answers is cut to size here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import InvalidVMIError, LauncherError, NoMachineError, WrongStateError
from virt_launcher.hypervisor.ports import AgentFilesystem, AgentUser, Facts, Hypervisor, State
from virt_launcher.machine.picture import Picture

log = get_logger(__name__)

#: Longer than any backup that freezes; a guest whose disks stand still is of no use to anybody.
MAX_FREEZE_S = 3600
#: A thaw that fails is tried again: the agent may be starting anew, with the filesystems still frozen.
THAW_AGAIN_S = 5


class Controls:
    """`modifying` is the lock of all commands that change the machine, `require` says that it runs."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        modifying: Callable[[], AbstractContextManager[None]],
        require: Callable[[], Facts],
    ) -> None:
        self._hypervisor, self._modifying, self._require = hypervisor, modifying, require
        self._lock = threading.Lock()
        self._thaw_timer: threading.Timer | None = None
        self._frozen = False
        #: Called when the filesystems were let go without a command, so that virt-handler hears of it.
        self.on_late_thaw: Callable[[], None] = lambda: None
        #: Called before the filesystems stand still: what the guest has stored elsewhere is to be on the disk too.
        self.before_freeze: Callable[[], None] = lambda: None

    @property
    def frozen(self) -> bool:
        """Whether the guest's filesystems stand still, as far as we did it."""
        return self._frozen

    def soft_reboot(self) -> None:
        with self._modifying():
            if self._require().state is State.PAUSED:
                raise WrongStateError("the machine is paused: a paused guest cannot reboot")
            self._hypervisor.reboot()

    def reset(self) -> None:
        with self._modifying():
            self._require()
            self._hypervisor.reset()
            self._cancel_timer()
            self._frozen = False  # The guest that comes up is not frozen.

    def freeze(self, timeout_s: int) -> None:
        """0: until somebody unfreezes."""
        if not 0 <= timeout_s <= MAX_FREEZE_S:
            raise InvalidVMIError("unfreezeTimeout", f"{timeout_s} is not between 0 and {MAX_FREEZE_S} seconds")
        with self._modifying():
            self._require()
            if not self._hypervisor.is_frozen():
                self.before_freeze()
                self._hypervisor.freeze()
            self._cancel_timer()
            self._frozen = True
            if timeout_s:
                self._thaw_after(timeout_s)

    def unfreeze(self) -> None:
        with self._modifying():
            self._require()
            self._hypervisor.thaw()
            self._cancel_timer()
            self._frozen = False

    def agent_changed(self) -> None:
        """A guest that has started anew is not frozen, whatever we did to it before."""
        if not self._frozen:
            return
        try:
            if self._hypervisor.is_frozen():
                return
        except LauncherError:
            return  # Not known; the timer goes on.
        self._cancel_timer()
        self._frozen = False
        self.on_late_thaw()

    def screenshot(self) -> bytes:
        """PNG. Changes nothing, so it waits for no other command."""
        self._require()
        picture = Picture()
        self._hypervisor.screenshot(picture.feed)
        return picture.finish()

    def users(self) -> tuple[AgentUser, ...]:
        self._require()
        return self._hypervisor.agent_users()

    def filesystems(self) -> tuple[AgentFilesystem, ...]:
        self._require()
        return self._hypervisor.agent_filesystems()

    def _thaw_after(self, seconds: int) -> None:
        with self._lock:
            self._thaw_timer = threading.Timer(seconds, self._thaw_late)
            self._thaw_timer.daemon = True
            self._thaw_timer.start()

    def _cancel_timer(self) -> None:
        with self._lock:
            timer, self._thaw_timer = self._thaw_timer, None
        if timer is not None:
            timer.cancel()

    def _thaw_late(self) -> None:
        """Nobody unfroze the guest in time: whoever froze it may be gone."""
        log.warning("the guest's filesystems were frozen for too long, they are let go")
        try:
            self.unfreeze()
        except NoMachineError:
            self._frozen = False
        except LauncherError as error:
            log.error("the guest's filesystems cannot be let go yet", error=str(error), again_in_s=THAW_AGAIN_S)
            self._thaw_after(THAW_AGAIN_S)
        self.on_late_thaw()
