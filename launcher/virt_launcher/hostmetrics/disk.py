"""The figures as a small disk, written anew every few seconds. Its header tells the guest when it is being written."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from virt_core.runtime.logs import get_logger
from virt_launcher.disks.sources import DiskSource, supports_direct_io
from virt_launcher.errors import LauncherError
from virt_launcher.hostmetrics import document
from virt_launcher.hostmetrics.document import Metric

log = get_logger(__name__)

REFRESH_S = 5.0


def make_disk(path: Path) -> DiskSource:
    """Without figures at first. Found again by a later call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        with path.open("xb") as file:
            file.truncate(document.DISK_BYTES)
        write(path, [])
    return DiskSource(str(path), "raw", None, supports_direct_io(path), read_only=True)


def write(path: Path, metrics: list[Metric]) -> None:
    """Whoever reads meanwhile finds the header busy, or its sum wrong, and reads again."""
    text = document.body(document.to_xml(metrics))
    busy = document.header(text, busy=True)
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.pwrite(fd, busy, 0)
        os.pwrite(fd, text, len(busy))
        os.pwrite(fd, document.header(text, busy=False), 0)
    finally:
        os.close(fd)


class DiskWriter:
    def __init__(self, path: Path, collect: Callable[[], list[Metric]], stop: threading.Event) -> None:
        self._path, self._collect, self._stop = path, collect, stop

    def run(self) -> None:
        while not self._stop.wait(REFRESH_S):
            self.refresh()

    def refresh(self) -> None:
        try:
            write(self._path, self._collect())
        except (LauncherError, OSError, ValueError) as error:
            log.debug("the metrics on the guest's disk stay as they are", error=str(error))
