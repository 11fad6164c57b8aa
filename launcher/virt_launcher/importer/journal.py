"""How far an import is, beside the unfinished disk, so that the next importer goes on from there."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from virt_core.apis.base import Struct, decode, encode
from virt_core.runtime.files import SafeDir

FILE = ".virtpod-import.json"
_LIMIT = 1 << 16


class Entry(Struct):
    """`source` is whatever tells one source from another."""

    source: dict[str, Any]
    format: str = ""
    settled: int = 0
    size: int = 0
    whole: bool = False


class Journal:
    """None of a device's: what is half made there is made again."""

    def __init__(self, directory: SafeDir | None) -> None:
        self._directory = directory

    def read(self) -> Entry | None:
        if self._directory is None:
            return None
        try:
            return decode(self._directory.read(FILE, _LIMIT), Entry)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def write(self, entry: Entry) -> None:
        if self._directory is not None:
            self._directory.write_atomic(FILE, encode(entry), 0o660)

    def spare_file(self) -> int:
        """A file without a name."""
        if self._directory is None:
            raise LookupError("a device has no files")
        return self._directory.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)

    def clear(self) -> None:
        if self._directory is not None:
            self._directory.unlink(FILE)
