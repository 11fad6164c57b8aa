"""The checksum of a disk: computed once, beside the answers, since it takes as long as reading all of it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from virt_core.apis.exportplan import ExportVolume
from virt_launcher.exporter.disks import Disk, NoDisk, open_disk


class Sums:
    """One is computed at a time. What was computed is kept for as long as the disk does not change."""

    def __init__(self, stopped: Callable[[], bool] = lambda: False) -> None:
        self._lock, self._one = threading.Lock(), threading.Lock()
        self._known: dict[str, tuple[str, str]] = {}
        self._under_way: set[str] = set()
        self._stopped = stopped

    def get(self, volume: ExportVolume, tag: str) -> str:
        """Empty: it is being computed."""
        with self._lock:
            known = self._known.get(volume.name)
            if known is not None and known[0] == tag:
                return known[1]
            if volume.name not in self._under_way:
                self._under_way.add(volume.name)
                threading.Thread(target=self._compute, args=(volume,), name="checksum", daemon=True).start()
        return ""

    def _compute(self, volume: ExportVolume) -> None:
        try:
            with self._one, open_disk(volume) as disk:
                found = self._sum(disk)
            if found:
                with self._lock:
                    self._known[volume.name] = (disk.tag, found)
        except (NoDisk, OSError):
            return  # Whoever asks again begins again, and meets the same error where it is told.
        finally:
            with self._lock:
                self._under_way.discard(volume.name)

    def _sum(self, disk: Disk) -> str:
        sum_ = hashlib.sha256()
        for chunk in disk.read(0, disk.size):
            if self._stopped():
                return ""
            sum_.update(chunk)
        return sum_.hexdigest()
