"""How a launcher ends: shuts the guest down in time, and leaves one clear sentence behind when something went wrong."""

from __future__ import annotations

import time
from pathlib import Path

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import LauncherError, NoMachineError
from virt_launcher.machine.manager import DomainManager
from virt_launcher.machine.monitor import Monitor

log = get_logger(__name__)

#: A guest that is still booting does not hear the power button, so it is pressed again.
_PRESS_EVERY_S = 5.0
_KILL_WAIT_S = 15.0
_MESSAGE_LIMIT = 4096


def shut_down(manager: DomainManager, monitor: Monitor, grace_s: float) -> None:
    """Asks the guest, waits for as long as it may take, then ends the machine."""
    deadline = time.monotonic() + grace_s
    while not monitor.ended and (left := deadline - time.monotonic()) > 0:
        _press_power_button(manager)
        monitor.wait(lambda: monitor.ended, min(left, _PRESS_EVERY_S))
    if monitor.ended:
        return
    log.warning("the guest did not shut down in time and is ended", grace_s=grace_s)
    try:
        manager.kill()
    except LauncherError as error:
        log.warning("libvirt did not end the machine; QEMU is killed", error=str(error))
        monitor.kill_qemu()
    monitor.wait(lambda: monitor.ended, _KILL_WAIT_S)


def _press_power_button(manager: DomainManager) -> None:
    try:
        manager.shut_down()
    except NoMachineError:
        pass  # It has just ended; the event is on its way.
    except LauncherError as error:
        log.warning("the guest could not be asked to shut down; trying again", error=str(error))


def leave_message(path: Path, message: str) -> None:
    """For `kubectl describe pod`. Only where the container has such a file."""
    try:
        with open(path, "r+") as file:
            file.write(message[:_MESSAGE_LIMIT])
            file.truncate()
    except OSError as error:
        log.debug("no place for a termination message", path=str(path), error=str(error))
