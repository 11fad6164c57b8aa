"""The guest's memory, written to a file of a claim while the machine runs (it stands still meanwhile).

The claim's directory is the user's: the file is made there by us, beneath it and never through a link, and libvirt is
shown our descriptor of it. One dump at a time; a dump that fails leaves no half of a file. Imported only when somebody
asks for one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from virt_core.apis import names
from virt_core.runtime.files import open_beneath
from virt_core.runtime.logs import get_logger
from virt_launcher.errors import InvalidVMIError, LauncherError, WrongStateError
from virt_launcher.hypervisor.ports import Hypervisor

log = get_logger(__name__)

SUFFIX = names.MEMORY_DUMP_SUFFIX
_MAX_NAME = 255
#: A disk that writes less than this is given up.
_BYTES_PER_S = 4 << 20
_LEAST_S = 300.0


@dataclass(frozen=True, slots=True)
class Dump:
    """How the last dump stands. `ended_us` is 0 while it is written; `failure` is empty when it is good."""

    volume: str
    file: str
    started_us: int
    ended_us: int = 0
    failure: str = ""


class MemoryDumps:
    """`directory` says where a volume is in the Pod; `on_news` is called when a dump begins or ends."""

    def __init__(self, hypervisor: Hypervisor, directory: Callable[[str], Path], on_news: Callable[[], None]) -> None:
        self._hypervisor, self._directory, self._on_news = hypervisor, directory, on_news
        self._lock = threading.Lock()
        self.last: Dump | None = None

    def begin(self, volume: str, file: str, memory_bytes: int) -> None:
        """Returns at once. Who asks again for the same file learns nothing new; another one has to wait."""
        _check(volume, file)
        with self._lock:
            if self.last is not None and (self.last.volume, self.last.file) == (volume, file):
                return
            if self.last is not None and not self.last.ended_us:
                raise WrongStateError(f"the memory is still being written to {self.last.file}")
            directory = _open_directory(self._directory(volume), volume)
            self.last = Dump(volume, file, _now_us())
            limit_s = max(_LEAST_S, memory_bytes / _BYTES_PER_S)
            body = threading.Thread(target=self._run, args=(directory, file, limit_s), name="memory-dump", daemon=True)
            body.start()
        self._on_news()

    def _run(self, directory: int, file: str, limit_s: float) -> None:
        failure = ""
        try:
            self._write(directory, file, limit_s)
        except (LauncherError, OSError) as error:
            failure = str(error) or type(error).__name__
            log.warning("the guest's memory could not be written", file=file, error=failure)
            with contextlib.suppress(OSError):
                os.unlink(file, dir_fd=directory)
        finally:
            os.close(directory)
        with self._lock:
            assert self.last is not None
            self.last = replace(self.last, ended_us=_now_us(), failure=failure)
        self._on_news()

    def _write(self, directory: int, file: str, limit_s: float) -> None:
        _forget_older(directory)
        target = open_beneath(directory, file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        late = threading.Event()
        timer = threading.Timer(limit_s, self._give_up, (late,))
        timer.daemon = True
        timer.start()
        try:
            self._hypervisor.dump_memory(f"/proc/{os.getpid()}/fd/{target}")
            os.fsync(target)
        except LauncherError as error:
            if late.is_set():
                raise LauncherError(f"the memory was not written within {limit_s:.0f} s") from error
            raise
        finally:
            timer.cancel()
            os.close(target)

    def _give_up(self, late: threading.Event) -> None:
        late.set()
        with contextlib.suppress(LauncherError):
            self._hypervisor.abort_job()


def _check(volume: str, file: str) -> None:
    for name in (volume, file):
        if not name or "/" in name or name in (".", "..") or len(name.encode()) > _MAX_NAME or "\0" in name:
            raise InvalidVMIError("", f"{name!r} is not the name of a volume or a file")
    if not file.endswith(SUFFIX):
        raise InvalidVMIError("", f"the file of a memory dump must end with {SUFFIX}, not be called {file!r}")


def _open_directory(path: Path, volume: str) -> int:
    try:
        return open_beneath(path, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WrongStateError(f"volume {volume!r} is not in the Pod: {error.strerror}") from error


def _forget_older(directory: int) -> None:
    """A claim has room for one."""
    for name in os.listdir(directory):
        if name.endswith(SUFFIX):
            os.unlink(name, dir_fd=directory)


def _now_us() -> int:
    return time.time_ns() // 1000
