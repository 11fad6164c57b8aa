"""What has to survive between setup and teardown: one small file for each Pod interface."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from virt_core.apis.base import decode, encode
from virt_netsetup.model import Record


class State:
    """The records of one Pod, in a directory of its own below the state directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def load(self, nic: str) -> Record | None:
        try:
            return decode(self._path(nic).read_bytes(), Record)
        except FileNotFoundError:
            return None

    def save(self, record: Record) -> None:
        """Whole or not at all: a killed run must not leave half a record."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(record.nic.name)
        partial = path.with_suffix(".new")
        partial.write_bytes(encode(record))
        os.replace(partial, path)

    def remove(self, nic: str) -> None:
        self._path(nic).unlink(missing_ok=True)
        if self.directory.is_dir() and not any(self.directory.iterdir()):
            self.directory.rmdir()

    def all(self) -> Iterator[Record]:
        for path in sorted(self.directory.glob("*.nic.json")):
            yield decode(path.read_bytes(), Record)

    def _path(self, nic: str) -> Path:
        return self.directory / f"{nic}.nic.json"
