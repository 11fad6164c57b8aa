"""Before the machine starts, each of its virtiofsds must listen: QEMU asks once and gives up."""

from __future__ import annotations

import os
import stat
import threading
import time

from virt_core.apis.names import share_container, share_socket
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.errors import LauncherError

#: Their containers start beside this one, from the same image.
DEADLINE_S = 10.0
_LOOK_EVERY_S = 0.02


def await_shares(vmi: VirtualMachineInstance, directory: str, deadline_s: float = DEADLINE_S) -> None:
    """Raises LauncherError, which names the filesystem and the container to look at."""
    ends_at, pause = time.monotonic() + deadline_s, threading.Event()
    for index, filesystem in enumerate(vmi.spec.domain.devices.filesystems):
        while not _listens(share_socket(filesystem.name, directory)):
            if time.monotonic() > ends_at:
                where = f"spec.domain.devices.filesystems[{index}] ({filesystem.name})"
                raise LauncherError(
                    f"{where}: virtiofsd was not ready within {deadline_s:.0f} s;"
                    f" its container is {share_container(filesystem.name)}"
                )
            pause.wait(_LOOK_EVERY_S)


def _listens(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
