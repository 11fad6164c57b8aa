"""The directory that holds volumes and snapshots.

    pvc-UID            a filesystem volume: what Pods mount
    pvc-UID.img        a block volume's bytes
    .devices/pvc-UID   its device node, while it is attached
    .snapshots/snap-UID/  a snapshot: `data` or `data.img`, and `about.json`
    .making/pvc-UID    a mark: made for a claim, and no PersistentVolume says so yet
    .new/, .trash/     what is half made, and what is on its way out

Nothing stands under its name before all of it is on the disk: it is made in `.new`, synced, and renamed. After a crash
`.new` is emptied, and the work is begun anew. What goes is first renamed into `.trash`, so that nothing half removed
stands under its name either.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from virt_core.runtime.files import SafeDir, private_directory
from virt_local.storage import loops
from virt_local.storage.content import copy_block, copy_tree, remove
from virt_local.storage.walk import disk_usage

_NAME = re.compile(r"(pvc|snap)-[0-9A-Za-z][0-9A-Za-z-]{0,99}")
_LOCK_S = 20.0
_FOLDERS = (".new", ".trash", ".making", ".snapshots", ".devices")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a kept snapshot: the size of its source, and when it was taken."""

    size: int
    block: bool
    created_ns: int


class VolumeStore:
    """One process at a time has it: `open` waits for another one's end. Raises TimeoutError."""

    def __init__(self, root: Path) -> None:
        self.root = root
        private_directory(str(root))
        self._dir = SafeDir.open_own(root)
        for name in _FOLDERS:
            self._dir.mkdir(name, 0o700).close()
        self._lock = self._dir.open(".lock", os.O_RDWR | os.O_CREAT, 0o600)

    def open(self, clock: Callable[[], float] = time.monotonic) -> VolumeStore:
        until = clock() + _LOCK_S
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if clock() > until:
                    raise TimeoutError(f"another process works on {self.root}") from error
                time.sleep(0.1)
        for folder in (".new", ".trash"):
            with self._dir.subdir(folder) as found:
                for name in found.listdir():
                    remove(found, name)
        forget_stale_devices(self.root)
        return self

    def close(self) -> None:
        os.close(self._lock)
        self._dir.close()

    # Volumes.

    def place(self, name: str, *, block: bool) -> Path:
        return self.root / _leaf(name, block)

    def device(self, name: str) -> Path:
        return self.root / ".devices" / _checked(name)

    def has(self, name: str, *, block: bool) -> bool:
        return self._dir.exists(_leaf(name, block))

    def make(self, name: str, *, block: bool, size: int) -> None:
        """An empty one."""
        self._mark(name)

        def fill(new: SafeDir, leaf: str) -> None:
            _make_file(new, leaf, size) if block else _make_directory(new, leaf)

        self._finish(_leaf(name, block), fill)

    def make_copy(self, name: str, source: Path, *, block: bool, size: int) -> None:
        """Raises InUse or ContentError; nothing is left behind then."""
        self._mark(name)

        def fill(new: SafeDir, leaf: str) -> None:
            _copy(source, new, leaf, block=block)
            if block:
                _lengthen(new, leaf, size)

        self._finish(_leaf(name, block), fill)

    def grow(self, name: str, *, block: bool, size: int) -> None:
        if block:
            _lengthen(self._dir, _leaf(name, block), size)
            loops.grow(self.place(name, block=block))

    def used(self, name: str, *, block: bool) -> int:
        """Bytes on the disk; 0 for what is not there."""
        try:
            return _used(self._dir, _leaf(name, block))
        except FileNotFoundError:
            return 0

    def discard(self, name: str) -> None:
        """A volume in either form, its device and its mark."""
        with self._dir.subdir(".devices") as nodes:
            nodes.unlink(_checked(name))
        if self.has(name, block=True):
            loops.detach(self.place(name, block=True))
        for leaf in (_leaf(name, False), _leaf(name, True)):
            self._throw_away(leaf, leaf)
        self.settle(name)

    # Marks: what was made for a claim, and is not yet told to anybody.

    def marked(self) -> list[str]:
        return self._dir.listdir(".making")

    def settle(self, name: str) -> None:
        self._dir.unlink(f".making/{_checked(name)}")

    def _mark(self, name: str) -> None:
        with self._dir.subdir(".making") as marks:
            os.close(marks.open(_checked(name), os.O_WRONLY | os.O_CREAT))
            _sync(marks)

    # Devices.

    def attach(self, name: str) -> None:
        """Raises NoLoopDevices."""
        with self._dir.subdir(".devices") as nodes:
            loops.attach(nodes, _checked(name), self.place(name, block=True))

    def hide(self, name: str) -> None:
        """From now on nobody finds the device who has not found it yet."""
        with self._dir.subdir(".devices") as nodes:
            nodes.unlink(_checked(name))

    def is_attached(self, name: str) -> bool:
        return self._dir.exists(f".devices/{_checked(name)}")

    def detach(self, name: str) -> None:
        if self.has(name, block=True):
            loops.detach(self.place(name, block=True))

    # Snapshots.

    def take(self, handle: str, source: Path, *, block: bool, size: int) -> Snapshot:
        """Raises InUse or ContentError. Taken before: the one that is there."""
        known = self.snapshot(handle)
        if known is not None:
            return known
        taken = Snapshot(size, block, time.time_ns())

        def fill(new: SafeDir, leaf: str) -> None:
            with new.mkdir(leaf, 0o700, exist_ok=False) as inner:
                _copy(source, inner, _data(block), block=block)
                about = {"size": size, "block": block, "created_ns": taken.created_ns}
                inner.write_atomic("about.json", json.dumps(about).encode())

        self._finish(f".snapshots/{_checked(handle)}", fill)
        return taken

    def snapshot(self, handle: str) -> Snapshot | None:
        try:
            about = json.loads(self._dir.read(f".snapshots/{_checked(handle)}/about.json"))
        except FileNotFoundError:
            return None
        return Snapshot(int(about["size"]), bool(about["block"]), int(about["created_ns"]))

    def snapshot_place(self, handle: str, *, block: bool) -> Path:
        return self.root / ".snapshots" / _checked(handle) / _data(block)

    def discard_snapshot(self, handle: str) -> None:
        self._throw_away(f".snapshots/{_checked(handle)}", handle)

    # The disk.

    def free(self) -> int:
        found = os.fstatvfs(self._dir.fd)
        return found.f_bavail * found.f_frsize

    def _finish(self, target: str, fill: Callable[[SafeDir, str], None]) -> None:
        if self._dir.exists(target):
            return
        leaf = target.rpartition("/")[2]
        with self._dir.subdir(".new") as new:
            remove(new, leaf)
            try:
                fill(new, leaf)
            except BaseException:
                remove(new, leaf)
                raise
            _sync(new)
        self._dir.rename(f".new/{leaf}", target)
        _sync(self._dir)
        if "/" in target:
            with self._dir.subdir(target.rpartition("/")[0]) as parent:
                _sync(parent)

    def _throw_away(self, path: str, leaf: str) -> None:
        with self._dir.subdir(".trash") as trash:
            remove(trash, leaf)
            try:
                self._dir.rename(path, f".trash/{leaf}")
            except FileNotFoundError:
                return
            _sync(self._dir)
            remove(trash, leaf)


def forget_stale_devices(root: Path) -> None:
    """Also before any Pod starts: the number of a device of before a reboot may be another's by now."""
    if (root / ".devices").is_dir():
        with SafeDir.open_own(root / ".devices") as nodes:
            loops.forget_stale(nodes, root)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a volume or snapshot of ours")
    return name


def _leaf(name: str, block: bool) -> str:
    return f"{_checked(name)}.img" if block else _checked(name)


def _data(block: bool) -> str:
    return "data.img" if block else "data"


def _make_directory(new: SafeDir, leaf: str) -> None:
    with new.mkdir(leaf, 0o700, exist_ok=False) as made:
        # Any uid of any Pod may be the claim's user, as with a fresh disk of a cloud.
        os.fchmod(made.fd, 0o777)


def _make_file(new: SafeDir, leaf: str, size: int) -> None:
    fd = new.open(leaf, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


def _copy(source: Path, into: SafeDir, leaf: str, *, block: bool) -> None:
    copy_block(source, into, leaf) if block else copy_tree(source, into, leaf)
    _sync(into)


def _lengthen(directory: SafeDir, leaf: str, size: int) -> None:
    fd = directory.open(leaf, os.O_WRONLY)
    try:
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
            os.fsync(fd)
    finally:
        os.close(fd)


def _used(directory: SafeDir, leaf: str) -> int:
    fd = directory.open(leaf, os.O_RDONLY)
    try:
        status = os.fstat(fd)
        return disk_usage(fd) if stat.S_ISDIR(status.st_mode) else status.st_blocks * 512
    finally:
        os.close(fd)


def _sync(directory: SafeDir) -> None:
    os.fsync(directory.fd)
