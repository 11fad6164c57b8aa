"""The whole state of a machine in a claim: written so that it is whole or not there, and resumed at most once.

A state is worth something only together with the disks as they were at that instant. So the guest stands still from
before the first byte is written until the machine has ended (or until the disks are copied too), and a file that is
resumed loses its name before the guest runs its first instruction: whoever comes later finds only that it was used.
Imported only when somebody saves or resumes a machine.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from virt_core.apis import names
from virt_core.apis.base import UNREADABLE, Struct, decode, encode
from virt_core.apis.hibernation import Resumption
from virt_core.runtime.files import open_beneath, read_beneath
from virt_core.runtime.logs import get_logger
from virt_launcher.domain.domain import Domain, from_xml
from virt_launcher.errors import InvalidVMIError, LauncherError
from virt_launcher.hypervisor.ports import ALIVE, Hypervisor, State
from virt_launcher.settings import Paths

log = get_logger(__name__)

UNFINISHED = ".unfinished"
_FACTS = ".facts"
_MAX_FACTS = 1 << 20
_FIELD = f"metadata.annotations[{names.ANNOTATION_RESUME_FROM}]"


class SavedFacts(Struct):
    """What lies beside a state: how the guest stood, and its disks by the size and time of their files."""

    paused: bool = False
    disks: dict[str, list[int]] = {}


class Stillness:
    """A guest that stands still for the sake of its saved state."""

    def __init__(self, hypervisor: Hypervisor, on_news: Callable[[], None], kill: Callable[[], None]) -> None:
        self._hypervisor, self._on_news, self._kill = hypervisor, on_news, kill
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._paused_before = False
        self.held = False
        #: The machine ends by this, and its state is whole.
        self.hibernated = False

    def begin(self) -> bool:
        """Whether it stood still already."""
        facts = self._hypervisor.facts()
        if facts is None or facts.state not in ALIVE:
            raise LauncherError("there is no running machine")
        if facts.state is State.PAUSED:
            return True
        self._hypervisor.suspend()
        return False

    def give_up(self, paused: bool) -> None:
        if not paused:
            with contextlib.suppress(LauncherError):  # Its end is told elsewhere.
                self._hypervisor.resume()

    def hold(self, kind: str, paused: bool, hold_s: float) -> None:
        with self._lock:
            self.held, self._paused_before = True, paused
            self.hibernated = kind == names.STATE_HIBERNATE
            if not self.hibernated:
                self._timer = threading.Timer(hold_s, self._too_long)
                self._timer.daemon = True
                self._timer.start()

    def release(self) -> None:
        """Nothing for a machine that ends by it."""
        with self._lock:
            if not self.held or self.hibernated:
                return
            if self._timer is not None:
                self._timer.cancel()
            self.held = False
            if not self._paused_before:
                self._hypervisor.resume()
        self._on_news()

    def _too_long(self) -> None:
        log.warning("nobody let the guest go on after its state was saved; it goes on now")
        with contextlib.suppress(LauncherError):
            self.release()

    def end(self) -> None:
        try:
            self._hypervisor.destroy()
        except LauncherError as error:
            log.warning("libvirt did not end a machine whose state is saved; QEMU is killed", error=str(error))
            self._kill()


def write_state(
    directory: int, file: str, paused: bool, describe: Callable[[], str], write: Callable[[str], None]
) -> None:
    """`write` makes a file of that name, on the disk when it returns. The name of the whole comes last."""
    unfinished = f"{file}{UNFINISHED}"
    write(unfinished)
    try:
        # After the memory: what the guest had on its way to the disk is there now.
        facts = SavedFacts(paused=paused, disks=disk_marks(from_xml(describe())))
        _put(directory, f"{file}{_FACTS}", encode(facts))
        os.rename(unfinished, file, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        _remove(directory, unfinished)
        raise
    os.fsync(directory)


def disk_marks(domain: Domain) -> dict[str, list[int]]:
    """By the volume: how large a disk's file is and when it was last written; of a device only its size."""
    found = {}
    for disk in domain.devices.disks:
        path = disk.source_file or disk.source_dev
        if not path or disk.readonly or not disk.alias or not _is_of_a_claim(path):
            continue
        with contextlib.suppress(OSError):
            found[disk.alias.removeprefix("ua-")] = _mark(path)
    return found


def _is_of_a_claim(path: str) -> bool:
    return "/vmi-disks/" in path or path.startswith("/dev/")


def _mark(path: str) -> list[int]:
    seen = os.stat(path)
    if not stat.S_ISBLK(seen.st_mode):
        return [seen.st_size, seen.st_mtime_ns]
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return [os.lseek(fd, 0, os.SEEK_END)]
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Kept:
    """A state that is whole, opened. Its descriptors are the caller's for the time of `opened`."""

    directory: int
    file: str
    descriptor: int
    facts: SavedFacts

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def check(self, domain: Domain) -> None:
        """Raises InvalidVMIError when a disk is not as the machine left it."""
        now = disk_marks(domain)
        for name in sorted(self.facts.disks.keys() | now.keys()):
            if self.facts.disks.get(name) != now.get(name):
                raise refused(f'the disk "{name}" was written since the state was saved, and would be destroyed by it')

    def use_up(self) -> None:
        """From here on nobody can resume it, not even after a crash of the node. Raises LauncherError."""
        try:
            used = f"{self.file}{names.MACHINE_STATE_USED}"
            os.rename(self.file, used, src_dir_fd=self.directory, dst_dir_fd=self.directory)
            os.fsync(self.directory)
        except OSError as error:
            raise LauncherError(f"the saved state could not be marked as used: {error.strerror}") from error

    def empty(self) -> None:
        """Its room may be had again."""
        with contextlib.suppress(OSError):
            os.truncate(f"/proc/self/fd/{self.descriptor}", 0)


@contextlib.contextmanager
def opened(wanted: Resumption, paths: Paths) -> Iterator[Kept | None]:
    """None: this very state was used already. Raises InvalidVMIError when it is not there."""
    directory = _open(paths.machine_state, ".", os.O_RDONLY | os.O_DIRECTORY, wanted)
    try:
        if _is_there(directory, f"{wanted.file}{names.MACHINE_STATE_USED}"):
            yield None
            return
        descriptor = _open(directory, wanted.file, os.O_RDWR | os.O_NONBLOCK, wanted)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise refused(f"{wanted.file} in claim {wanted.claim} is not a regular file")
            yield Kept(directory, wanted.file, descriptor, _facts(directory, wanted))
        finally:
            os.close(descriptor)
    finally:
        os.close(directory)


def refused(why: str) -> InvalidVMIError:
    return InvalidVMIError(_FIELD, f"{why}; start the VM with --discard-state to boot it afresh")


def _facts(directory: int, wanted: Resumption) -> SavedFacts:
    name = f"{wanted.file}{_FACTS}"
    try:
        return decode(read_beneath(directory, name, _MAX_FACTS), SavedFacts)
    except (OSError, *UNREADABLE) as error:
        raise refused(f"{name} in claim {wanted.claim} cannot be read: {error}") from error


def _open(where: int | Path, name: str, flags: int, wanted: Resumption) -> int:
    try:
        return open_beneath(where, name, flags | os.O_CLOEXEC)
    except OSError as error:
        what = f"the saved state {wanted.file} is not usable in claim {wanted.claim}"
        raise refused(f"{what}: {error.strerror or error}") from error


def _is_there(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _put(directory: int, name: str, content: bytes) -> None:
    _remove(directory, name)
    fd = open_beneath(directory, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove(directory: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=directory)
