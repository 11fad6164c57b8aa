"""The guest's memory, written to a file of a claim: a core while the machine runs, or its whole state.

The claim's directory is the user's: the file is made there by us, beneath it and never through a link, and libvirt is
shown our descriptor of it. One at a time; one that fails leaves no half of a file. Imported only when somebody asks
for one.
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
from virt_launcher.hypervisor.ports import Hypervisor, State
from virt_launcher.machine.saved_state import Stillness, write_state
from virt_launcher.machine.state import MachineView

log = get_logger(__name__)

SUFFIX = names.MEMORY_DUMP_SUFFIX
_SUFFIXES = {
    "": SUFFIX,
    names.STATE_HIBERNATE: names.MACHINE_STATE_SUFFIX,
    names.STATE_SNAPSHOT: names.MACHINE_STATE_SUFFIX,
}
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
    #: Empty for a core, else what becomes of the machine.
    kind: str = ""


class MemoryDumps:
    """`directory` says where a volume is in the Pod; `on_news` is called when a dump begins or ends."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        directory: Callable[[str], Path],
        on_news: Callable[[], None],
        kill: Callable[[], None] = lambda: None,
    ) -> None:
        self._hypervisor, self._directory, self._on_news = hypervisor, directory, on_news
        self._lock = threading.Lock()
        self.still = Stillness(hypervisor, on_news, kill)
        self.last: Dump | None = None

    @property
    def holds_still(self) -> bool:
        """Whether the guest must not go on: its state is being written, or is written and counts."""
        last = self.last
        saving = last is not None and bool(last.kind) and not last.ended_us
        return saving or self.still.held

    def shown(self, seen: MachineView) -> MachineView:
        """A machine that ended by being saved ended well."""
        if self.still.hibernated and seen.state is State.SHUTOFF:
            return replace(seen, reason="Saved", message="")
        return replace(seen, held=self.still.held and seen.alive)

    def begin(self, volume: str, file: str, memory_bytes: int, kind: str = "", hold_s: float = 0.0) -> None:
        """Returns at once. Who asks again for the same file learns nothing new; another one has to wait."""
        _check(volume, file, kind)
        with self._lock:
            if self.last is not None and (self.last.volume, self.last.file) == (volume, file):
                return
            if self.last is not None and not self.last.ended_us:
                raise WrongStateError(f"the memory is still being written to {self.last.file}")
            if self.still.held:
                raise WrongStateError("the machine stands still since its state was saved")
            directory = _open_directory(self._directory(volume), volume)
            self.last = Dump(volume, file, _now_us(), kind=kind)
            limit_s = max(_LEAST_S, memory_bytes / _BYTES_PER_S)
            arguments = (directory, file, limit_s, kind, hold_s)
            threading.Thread(target=self._run, args=arguments, name="memory-dump", daemon=True).start()
        self._on_news()

    def _run(self, directory: int, file: str, limit_s: float, kind: str, hold_s: float) -> None:
        failure = ""
        try:
            _forget_older(directory, _SUFFIXES[kind])
            if kind:
                self._state(directory, file, limit_s, kind, hold_s)
            else:
                self._write(directory, file, limit_s, self._hypervisor.dump_memory)
        except (LauncherError, OSError) as error:
            failure = str(error) or type(error).__name__
            log.warning("the guest's memory could not be written", file=file, error=failure)
        finally:
            os.close(directory)
        with self._lock:
            assert self.last is not None
            self.last = replace(self.last, ended_us=_now_us(), failure=failure)
        if kind == names.STATE_HIBERNATE and not failure:
            self.still.end()
        self._on_news()

    def _state(self, directory: int, file: str, limit_s: float, kind: str, hold_s: float) -> None:
        """From here on until it is held the guest stands still; whatever fails, it goes on."""
        paused = self.still.begin()
        try:
            write_state(
                directory,
                file,
                paused,
                self._hypervisor.describe,
                lambda name: self._write(directory, name, limit_s, self._hypervisor.save_state),
            )
        except BaseException:
            self.still.give_up(paused)
            raise
        self.still.hold(kind, paused, hold_s)

    def _write(self, directory: int, file: str, limit_s: float, write: Callable[[str], None]) -> None:
        """Whole and on the disk, or not there."""
        target = open_beneath(directory, file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        late = threading.Event()
        timer = threading.Timer(limit_s, self._give_up, (late,))
        timer.daemon = True
        timer.start()
        try:
            write(f"/proc/{os.getpid()}/fd/{target}")
            os.fsync(target)
        except (LauncherError, OSError) as error:
            with contextlib.suppress(OSError):
                os.unlink(file, dir_fd=directory)
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


def _check(volume: str, file: str, kind: str) -> None:
    for name in (volume, file):
        if not name or "/" in name or name in (".", "..") or len(name.encode()) > _MAX_NAME or "\0" in name:
            raise InvalidVMIError("", f"{name!r} is not the name of a volume or a file")
    suffix = _SUFFIXES[kind]
    if not file.endswith(suffix):
        what = "a machine's state" if kind else "a memory dump"
        raise InvalidVMIError("", f"the file of {what} must end with {suffix}, not be called {file!r}")


def _open_directory(path: Path, volume: str) -> int:
    try:
        return open_beneath(path, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WrongStateError(f"volume {volume!r} is not in the Pod: {error.strerror}") from error


def _forget_older(directory: int, suffix: str) -> None:
    """A claim has room for one. What was resumed is kept as a mark, without its bytes."""
    for name in os.listdir(directory):
        if name.endswith((suffix, f"{suffix}.unfinished", f"{suffix}.facts")):
            os.unlink(name, dir_fd=directory)


def _now_us() -> int:
    return time.time_ns() // 1000
