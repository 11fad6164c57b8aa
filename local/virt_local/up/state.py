"""What an instance remembers on disk: who supervises it, which processes it started, and with which settings.

A process is named by pid and start time, so that a number which the kernel gave to somebody else is never signalled.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from virt_core.runtime.procs import ProcessGone, ProcessId
from virt_local.up.instance import Instance, make_instance
from virt_local.up.pki import write_public


class AlreadyRunning(RuntimeError):
    """Another supervisor holds the instance."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The command line of the last `up`, so that `status`, `down` and a take-over know what was made."""

    name: str
    port: int
    nodes: int
    network: str
    components: bool


def save_settings(instance: Instance, *, components: bool) -> None:
    settings = Settings(instance.name, instance.port, instance.node_count, str(instance.network), components)
    write_public(_settings_path(instance.data_dir), (json.dumps(asdict(settings)) + "\n").encode())


def load_settings(data_dir: Path) -> Settings | None:
    try:
        plain: dict[str, Any] = json.loads(_settings_path(data_dir).read_text())
        return Settings(**plain)
    except FileNotFoundError:
        return None


def load_instance(data_dir: Path) -> tuple[Instance, Settings] | None:
    """The instance that lives in a data directory, or nothing."""
    settings = load_settings(data_dir)
    if settings is None:
        return None
    instance = make_instance(settings.name, str(data_dir), settings.port, settings.nodes, settings.network)
    return instance, settings


def _settings_path(data_dir: Path) -> Path:
    return data_dir / "run" / "settings.json"


class Lock:
    """One supervisor for each data directory. The kernel releases the lock when its holder dies, however it dies."""

    def __init__(self, instance: Instance) -> None:
        self._path = instance.run_dir / "supervisor.lock"
        self._fd = -1

    def acquire(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            os.close(fd)
            raise AlreadyRunning(str(self._path)) from err
        self._fd = fd

    def claim(self) -> None:
        """Writes down that this process is the supervisor now."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, encode_process(ProcessId.of(os.getpid())).encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def supervisor_of(instance: Instance) -> ProcessId | None:
    """The living supervisor, if there is one."""
    with suppress(FileNotFoundError):
        process = decode_process((instance.run_dir / "supervisor.lock").read_text())
        if process is not None and process.alive():
            return process
    return None


@dataclass(frozen=True, slots=True)
class Entry:
    """A component as the book knows it; `process` is None when it does not run at this moment."""

    component: str
    process: ProcessId | None
    restarts: int


class ProcessBook:
    """The processes that a supervisor started, one file each: written before anything else is done with them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, component: str, pid: int, restarts: int = 0) -> None:
        with suppress(ProcessGone):
            entry = f"{encode_process(ProcessId.of(pid)).strip()} {restarts}\n"
            write_public(self._path(component), entry.encode())

    def remove(self, component: str) -> None:
        self._path(component).unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        if not self._directory.is_dir():
            return []
        return [self._entry(path) for path in sorted(self._directory.glob("*.pid"))]

    def living(self) -> dict[str, ProcessId]:
        return {entry.component: entry.process for entry in self.entries() if entry.process is not None}

    def _entry(self, path: Path) -> Entry:
        text = path.read_text()
        process = decode_process(text)
        restarts = int(text.split()[2]) if len(text.split()) > 2 else 0
        return Entry(path.stem, process if process is not None and process.alive() else None, restarts)

    def _path(self, component: str) -> Path:
        return self._directory / f"{component}.pid"


def encode_process(process: ProcessId) -> str:
    return f"{process.pid} {process.start_time}\n"


def decode_process(text: str) -> ProcessId | None:
    parts = text.split()
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        return None
    return ProcessId(int(parts[0]), int(parts[1]))
