"""The list of checkpoints beside the layers of a machine's disks. Whoever reads it trusts none of it: libvirt looks for
the bitmaps themselves."""

from __future__ import annotations

import os
from pathlib import Path

from virt_core.apis.base import UNREADABLE, Struct, decode, encode
from virt_core.runtime.files import open_beneath
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

FILE = "checkpoints.json"
_UNFINISHED = f"{FILE}.unfinished"
_MOST_BYTES = 1 << 20
#: A machine has one for each tracker, and one more.
MOST = 64


class Checkpoint(Struct):
    """A point in time since which changes are known."""

    name: str  #: Of its bitmaps, too.
    created: int  #: In seconds since 1970.
    volumes: list[str] = []  #: The volumes.


class Listed(Struct):
    """What is in the file."""

    checkpoints: list[Checkpoint] = []  #: The oldest first.


class Checkpoints:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def all(self) -> list[Checkpoint]:
        """None, if the list cannot be read: then the next backup is a full one."""
        try:
            fd = open_beneath(self._directory, FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        except OSError as error:
            log.warning("the list of checkpoints cannot be opened", error=str(error))
            return []
        try:
            return decode(os.read(fd, _MOST_BYTES), Listed).checkpoints[-MOST:]
        except (OSError, *UNREADABLE) as error:
            log.warning("the list of checkpoints cannot be read", error=str(error))
            return []
        finally:
            os.close(fd)

    def add(self, checkpoint: Checkpoint) -> None:
        self._write([*(each for each in self.all() if each.name != checkpoint.name), checkpoint])

    def remove(self, name: str) -> None:
        self._write([each for each in self.all() if each.name != name])

    def _write(self, checkpoints: list[Checkpoint]) -> None:
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                os.unlink(_UNFINISHED, dir_fd=directory)
            except FileNotFoundError:
                pass
            fd = open_beneath(directory, _UNFINISHED, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
            with os.fdopen(fd, "wb") as file:
                file.write(encode(Listed(checkpoints=checkpoints)))
                file.flush()
                os.fsync(file.fileno())
            os.rename(_UNFINISHED, FILE, src_dir_fd=directory, dst_dir_fd=directory)
        finally:
            os.close(directory)
