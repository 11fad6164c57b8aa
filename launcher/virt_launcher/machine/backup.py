"""The disks of the running machine, written to files of a claim as they are at one instant: whole, or what has changed.

What has changed is known by checkpoints: QEMU notes in a bitmap of the disk's layer (disks/tracking.py) what is
written after one. The bitmaps outlive the machine, libvirt's memory of them does not; so the launcher keeps a list of
them beside the layers and tells libvirt of them anew when a backup asks. libvirt looks then whether each bitmap is
there and whole: a machine that was killed has left none that is, and the backup is a full one that says why.

The claim's directory is the user's: directories and files are made there by us, beneath it and never through a link.
A backup that fails leaves no half of a file. Imported only when somebody asks for one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from virt_core.runtime.files import open_beneath
from virt_core.runtime.logs import get_logger
from virt_launcher.disks import qcow2
from virt_launcher.disks.held import Identity, check_held
from virt_launcher.domain.domain import from_xml
from virt_launcher.errors import InvalidVMIError, LauncherError, WrongStateError
from virt_launcher.hypervisor.ports import BackupEnd, Hypervisor
from virt_launcher.machine.backup_xml import Part, backup_xml, checkpoint_xml, redefined_xml
from virt_launcher.machine.checkpoints import Checkpoint, Checkpoints
from virt_launcher.machine.controls import Controls
from virt_launcher.machine.state import is_layer

log = get_logger(__name__)

QUIESCED, NOT_QUIESCED, QUIESCE_SKIPPED = "QuiesceSucceeded", "QuiesceFailed", "QuiesceSkipped"
_MAX_NAME = 255
#: Should we never get to thaw: the guest's disks move again then.
_FREEZE_S = 60
#: A disk that writes less than this is given up.
_BYTES_PER_S = 4 << 20
_LEAST_S = 600.0
_LOOK_S = 0.2
_FIELD = "the target of the backup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked for. Name and start together are the backup's identity."""

    name: str
    started: str
    #: The volume in the Pod that takes it, and the directory in there.
    volume: str
    directory: str
    #: The checkpoint that it makes, if any, and the one since which changes count; empty: everything counts.
    checkpoint: str = ""
    since: str = ""
    skip_quiesce: bool = False
    #: Checkpoints that others still build on. All others go.
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """How the last one stands. `ended_us` is 0 while it is written; `failure` is empty when it is good."""

    name: str
    started: str
    checkpoint: str
    incremental: bool = False
    #: Why it holds everything although only changes were asked for.
    broken: str = ""
    quiesce: str = ""
    quiesce_message: str = ""
    volumes: tuple[str, ...] = ()
    ended_us: int = 0
    failure: str = ""


@dataclass(slots=True)
class _File:
    part: Part
    fd: int
    name: str


class Backups:
    """`directory` says where a volume is in the Pod, `layers` where those of the disks are."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        controls: Controls,
        *,
        directory: Callable[[str], Path],
        layers: Path,
        modifying: Callable[[], AbstractContextManager[None]],
        read_pid: Callable[[], int | None],
        on_news: Callable[[], None],
    ) -> None:
        self._hypervisor, self._controls, self._directory = hypervisor, controls, directory
        self._modifying, self._read_pid, self._on_news = modifying, read_pid, on_news
        self._checkpoints = Checkpoints(layers)
        self._lock = threading.Lock()
        self._aborted = threading.Event()
        self.last: Backup | None = None

    @property
    def under_way(self) -> bool:
        return self.last is not None and not self.last.ended_us

    def begin(self, order: Order) -> None:
        """Returns at once. Who asks again for the same one learns nothing new; another one has to wait."""
        _check(order)
        with self._lock:
            last = self.last
            if last is not None and (last.name, last.started) == (order.name, order.started):
                return
            if self.under_way and last is not None:
                raise WrongStateError(f"the backup {last.name} is still being written")
            root = _open_directory(self._directory(order.volume), order.volume)
            self._aborted.clear()
            self.last = Backup(name=order.name, started=order.started, checkpoint=order.checkpoint)
            threading.Thread(target=self._run, args=(order, root), name="backup", daemon=True).start()
        self._on_news()

    def abort(self, name: str) -> None:
        """Ends the one of this name, if it is under way."""
        with self._lock:
            if not self.under_way or self.last is None or self.last.name != name:
                return
            self._aborted.set()
        with contextlib.suppress(LauncherError):  # Not begun by libvirt yet, or just over: the thread looks for itself.
            self._hypervisor.abort_job()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self, order: Order, root: int) -> None:
        failure = "the launcher made a mistake; its log says which"
        try:
            self._write(order, root)
            failure = ""
        except (LauncherError, OSError) as error:
            failure = str(error) or type(error).__name__
            log.warning("the backup failed", backup=order.name, error=failure)
        finally:
            os.close(root)
            self._tell(ended_us=time.time_ns() // 1000, failure=failure)

    def _write(self, order: Order, root: int) -> None:
        disks = self._disks()
        since, broken = self._since(order, disks)
        saved = since.volumes if since is not None else []
        parts = [Part(volume, target, volume in saved) for volume, target in disks.items()]
        incremental = any(part.incremental for part in parts)
        self._tell(incremental=incremental, broken=broken, volumes=tuple(disks))
        with self._files(order, root, parts) as files:
            paths = {f.part.volume: str(self._directory(order.volume) / order.directory / f.name) for f in files}
            xml = backup_xml(parts, paths, order.since if incremental else "")
            self._begin(order, xml, checkpoint_xml(order.checkpoint, parts, self._all_targets()))
            try:
                self._await(files)
                for file in files:
                    _demand_same(root, order.directory, file)
                    os.fsync(file.fd)
            except (LauncherError, OSError):
                self._drop(order.checkpoint)
                raise
        if order.checkpoint:
            made = Checkpoint(name=order.checkpoint, created=int(time.time()), volumes=list(disks))
            self._checkpoints.add(made)

    def _begin(self, order: Order, xml: str, checkpoint: str) -> None:
        """The instant that is saved is the one of this call; the guest is held still for no longer."""
        frozen_before = self._controls.frozen
        self._quiesce(order)
        try:
            if self._aborted.is_set():
                raise LauncherError("the backup was aborted")
            with self._modifying():
                self._hypervisor.begin_backup(xml, checkpoint)
        finally:
            if self._controls.frozen and not frozen_before:
                self._thaw()

    def _quiesce(self, order: Order) -> None:
        if order.skip_quiesce:
            self._tell(quiesce=QUIESCE_SKIPPED)
            return
        try:
            self._controls.freeze(_FREEZE_S)
        except LauncherError as error:
            self._tell(quiesce=NOT_QUIESCED, quiesce_message=str(error))
        else:
            self._tell(quiesce=QUIESCED)

    def _thaw(self) -> None:
        try:
            self._controls.unfreeze()
        except LauncherError as error:
            log.error("the guest's filesystems cannot be let go yet", error=str(error), again_in_s=_FREEZE_S)

    def _await(self, files: Sequence[_File]) -> None:
        """Raises LauncherError when it did not become whole."""
        total = sum(self._hypervisor.disk_size(file.part.target) for file in files)
        limit_s = max(_LEAST_S, total / _BYTES_PER_S)
        deadline, looked, late = time.monotonic() + limit_s, False, False
        while (end := self._hypervisor.backup_end()) is None:
            if not looked:
                self._check_held(files)
                looked = True
            if time.monotonic() > deadline and not late:
                late = True
                self._hypervisor.abort_job()
            elif self._aborted.is_set():
                with contextlib.suppress(LauncherError):
                    self._hypervisor.abort_job()
            time.sleep(_LOOK_S)
        if late:
            raise LauncherError(f"the backup was not written within {limit_s:.0f} s")
        _judge(end)

    def _check_held(self, files: Sequence[_File]) -> None:
        """Whoever else can write to the claim could have led QEMU elsewhere."""
        try:
            check_held(self._read_pid(), [Identity.of(file.fd, _FIELD) for file in files])
        except InvalidVMIError as error:
            if self._hypervisor.backup_end() is not None:
                return  # It was quick, and has closed them.
            self._hypervisor.abort_job()
            raise LauncherError("a file of the backup was replaced while it was written") from error

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def forget_checkpoints(self) -> None:
        """Before a move: libvirt moves no machine that has some, and they are told anew on the other side."""
        for name in self._hypervisor.checkpoints():
            self._hypervisor.delete_checkpoint(name, forget=True)

    def _since(self, order: Order, disks: dict[str, str]) -> tuple[Checkpoint | None, str]:
        """The checkpoint to build on, or why there is none. Tells libvirt of all that is kept, and drops the rest."""
        known, wanted = set(self._hypervisor.checkpoints()), {order.since, *order.keep}
        reasons: dict[str, str] = {}
        for each in self._checkpoints.all():
            there = tuple(volume for volume in each.volumes if volume in disks)
            try:
                if each.name not in known:
                    if not there:
                        raise LauncherError("the machine has none of its disks any more")
                    self._hypervisor.redefine_checkpoint(
                        redefined_xml(each.name, each.created, [disks[v] for v in there])
                    )
                if each.name not in wanted:
                    self._hypervisor.delete_checkpoint(each.name)
            except LauncherError as error:
                reasons[each.name] = str(error)
                log.warning("a checkpoint is of no use any more", checkpoint=each.name, error=str(error))
            if each.name in reasons or each.name not in wanted:
                self._checkpoints.remove(each.name)
        found = next((each for each in self._checkpoints.all() if each.name == order.since), None)
        if not order.since or found is not None:
            return found, ""
        why = reasons.get(order.since, "its bitmaps are not on the machine's claim")
        return None, f"the checkpoint {order.since} cannot be built on: {why}"

    def _drop(self, name: str) -> None:
        """Of a backup that failed: nobody will build on it."""
        try:
            if name in self._hypervisor.checkpoints():
                self._hypervisor.delete_checkpoint(name)
        except LauncherError as error:
            log.warning("the checkpoint of a failed backup stays", checkpoint=name, error=str(error))

    # -- disks and files -------------------------------------------------------------------------------------------

    def _disks(self) -> dict[str, str]:
        """Targets by volume, of the disks whose changes are tracked."""
        found = {
            (disk.alias or "").removeprefix("ua-"): disk.target or ""
            for disk in from_xml(self._hypervisor.describe()).devices.disks
            if disk.source_file and is_layer(disk.source_file)
        }
        if not found:
            raise LauncherError("the machine has no disk whose changed blocks are tracked")
        return found

    def _all_targets(self) -> list[str]:
        return [disk.target or "" for disk in from_xml(self._hypervisor.describe()).devices.disks]

    @contextmanager
    def _files(self, order: Order, root: int, parts: Sequence[Part]) -> Iterator[list[_File]]:
        """Empty images of the right size. They go again when the backup fails."""
        made: list[_File] = []
        directory = _make_directories(root, order.directory)
        try:
            for part in parts:
                name = f"{order.name}-{part.volume}.qcow2"
                fd = open_beneath(directory, name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
                made.append(_File(part, fd, name))
                qcow2.write(fd, self._hypervisor.disk_size(part.target))
            yield made
            os.fsync(directory)
        except BaseException:
            for file in made:
                with contextlib.suppress(OSError):
                    os.unlink(file.name, dir_fd=directory)
            with contextlib.suppress(OSError):
                os.rmdir(order.directory, dir_fd=root)
            raise
        finally:
            for file in made:
                os.close(file.fd)
            os.close(directory)

    def _tell(self, **news: object) -> None:
        with self._lock:
            assert self.last is not None
            self.last = replace(self.last, **news)  # type: ignore[arg-type]
        self._on_news()


def _judge(end: BackupEnd) -> None:
    if end.failure:
        raise LauncherError(end.failure)


def _demand_same(root: int, directory: str, file: _File) -> None:
    """The file of that name is still the one that we made."""
    fd = open_beneath(root, f"{directory}/{file.name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if Identity.of(fd, _FIELD) != Identity.of(file.fd, _FIELD):
            raise LauncherError("a file of the backup was replaced while it was written")
    finally:
        os.close(fd)


def _check(order: Order) -> None:
    for name in (order.name, order.volume, order.checkpoint or order.name, *order.directory.split("/")):
        if not name or "/" in name or name in (".", "..") or len(name.encode()) > _MAX_NAME or "\0" in name:
            raise InvalidVMIError("", f"{name!r} is not the name of a backup, a volume or a directory")


def _open_directory(path: Path, volume: str) -> int:
    try:
        return open_beneath(path, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WrongStateError(f"volume {volume!r} is not in the Pod: {error.strerror}") from error


def _make_directories(root: int, path: str) -> int:
    """The last of them must be new."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    *above, last = path.split("/")
    current = os.dup(root)
    try:
        for name in above:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o770, dir_fd=current)
            deeper = open_beneath(current, name, flags)
            os.close(current)
            current = deeper
        try:
            os.mkdir(last, 0o770, dir_fd=current)
        except FileExistsError as error:
            raise LauncherError(f"the claim has a directory {path} already") from error
        return open_beneath(current, last, flags)
    finally:
        os.close(current)
