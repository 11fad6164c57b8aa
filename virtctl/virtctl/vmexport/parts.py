"""A file that is being downloaded: under another name until it is whole, with a note of how far it is sure."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import click

_BLOCK = 1 << 16
_ZEROS = bytes(_BLOCK)


class FileTarget:
    """`sparse`: blocks of zeros are left out."""

    def __init__(self, path: Path, *, sparse: bool = False) -> None:
        self._path, self._sparse = path, sparse
        self._part, self._note = Path(f"{path}.part"), Path(f"{path}.part.state")
        self._file: BinaryIO = self._open()
        self._marked = self._read_note()

    def _open(self) -> BinaryIO:
        try:
            return open(os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
        except OSError as error:
            raise click.ClickException(f"cannot write {self._part}: {error.strerror}") from error

    def _read_note(self) -> dict[str, Any]:
        try:
            found = json.loads(self._note.read_text())
            length = found["length"]
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return found if isinstance(length, int) and 0 <= length <= os.fstat(self._file.fileno()).st_size else {}

    def write(self, data: bytes) -> None:
        if not self._sparse:
            self._file.write(data)
            return
        view = memoryview(data)
        for at in range(0, len(view), _BLOCK):
            piece = view[at : at + _BLOCK]
            if piece == _ZEROS[: len(piece)]:
                self._file.seek(len(piece), os.SEEK_CUR)
            else:
                self._file.write(piece)

    def mark(self, state: dict[str, Any]) -> None:
        self._file.truncate(self._file.tell())
        self._file.flush()
        self._marked = {**state, "length": self._file.tell()}
        new = Path(f"{self._note}.new")
        new.write_text(json.dumps(self._marked))
        new.replace(self._note)

    def known(self) -> dict[str, Any]:
        return self._marked

    def forget(self) -> None:
        self._marked = {}

    def back(self) -> None:
        self._file.seek(self._marked.get("length", 0))
        self._file.truncate()

    def prefix(self) -> BinaryIO | None:
        return self._part.open("rb")

    def finish(self) -> None:
        self._file.truncate(self._file.tell())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self._path)
        self._note.unlink(missing_ok=True)

    def discard(self) -> None:
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def close(self) -> None:
        self._file.close()


class PipeTarget:
    """Standard output. What went there cannot be taken back: what comes again is left out."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._state: dict[str, Any] = {}
        self._written = self._marked = self._skip = 0

    def write(self, data: bytes) -> None:
        left_out = min(self._skip, len(data))
        self._skip -= left_out
        self._stream.write(data[left_out:])
        self._written += len(data) - left_out

    def mark(self, state: dict[str, Any]) -> None:
        self._state, self._marked = dict(state), self._written

    def known(self) -> dict[str, Any]:
        return self._state

    def forget(self) -> None:
        if self._written:
            raise click.ClickException("the disk has changed, and what was written cannot be taken back")

    def back(self) -> None:
        self._skip = self._written - self._marked

    def prefix(self) -> BinaryIO | None:
        return None

    def finish(self) -> None:
        self._stream.flush()

    def discard(self) -> None:
        """It is out already; the exit code says that it is not right."""

    def close(self) -> None:
        """It is not ours."""
