"""What has to survive between setup and teardown: a few small files in a directory for each Pod."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from virt_core.apis.base import decode, encode
from virt_core.runtime.files import SafeDir, private_directory
from virt_netsetup.model import Record

_SUFFIX = ".nic.json"


class Folder:
    """A directory of ours alone, with files in it. What others could have put there is refused, not followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        private_directory(str(self.path.parent))
        private_directory(str(self.path))

    def read(self, name: str) -> bytes | None:
        try:
            with SafeDir.open_own(self.path) as directory:
                return directory.read(name)
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Whole or not at all: a killed run must not leave half a record."""
        self.make()
        with SafeDir.open_own(self.path) as directory:
            directory.write_atomic(name, data, sync=False)

    def names(self) -> list[str]:
        try:
            with SafeDir.open_own(self.path) as directory:
                return directory.listdir()
        except FileNotFoundError:
            return []

    def remove(self, *names: str) -> None:
        try:
            with SafeDir.open_own(self.path) as directory:
                for name in names:
                    directory.unlink(name)
        except FileNotFoundError:
            return

    def remove_if_empty(self) -> None:
        if self.path.is_dir() and not self.names():
            os.rmdir(self.path)


class State:
    """The records of one Pod."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.folder = Folder(directory)

    def load(self, nic: str) -> Record | None:
        data = self.folder.read(f"{nic}{_SUFFIX}")
        return None if data is None else decode(data, Record)

    def save(self, record: Record) -> None:
        self.folder.write(f"{record.nic.name}{_SUFFIX}", encode(record))

    def remove(self, nic: str) -> None:
        self.folder.remove(f"{nic}{_SUFFIX}")
        self.folder.remove_if_empty()

    def all(self) -> Iterator[Record]:
        for name in self.folder.names():
            record = self.load(name.removesuffix(_SUFFIX)) if name.endswith(_SUFFIX) else None
            if record is not None:
                yield record
