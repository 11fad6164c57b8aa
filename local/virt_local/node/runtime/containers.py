"""Containers over their whole life: make, start, stop, look after, forget. Every step may be repeated after a crash."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from virt_core.apis.base import encode
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.procs import ProcessGone, ProcessId
from virt_core.runtime.times import rfc3339_micro
from virt_local.node.images.root import drop_overlay
from virt_local.node.layout import NodeLayout, load, remove_tree, save, write_atomic
from virt_local.node.runtime import monitor
from virt_local.node.runtime.monitor import MonitorSettings
from virt_local.node.runtime.records import ContainerRecord
from virt_local.node.runtime.runc import Runc

log = get_logger(__name__)

#: What is reported when nobody was there to take the exit code.
LOST_EXIT_CODE = 137
START_EXIT_CODE = 128
_LOST = "the container ended while nobody was there to take its exit code (conmon was killed, or the machine restarted)"
_MESSAGE_MAX = 4096
_LOG_MESSAGE_MAX = 2048
_LOG_MESSAGE_LINES = 80


@dataclass(frozen=True)
class Streams:
    """What a container's program is connected to. `stdin`: "" none, "once", or "keep" open after a client leaves."""

    log_path: Path
    stdin: str = ""
    terminal: bool = False


class Containers:
    def __init__(self, layout: NodeLayout, runc: Runc, settings: MonitorSettings, clock: Clock) -> None:
        self._layout = layout
        self.runc = runc
        self._settings = settings
        self._clock = clock

    def bundle(self, uid: str, record: ContainerRecord) -> Path:
        return self._layout.container(uid, record.id)

    def prepare(self, uid: str, record: ContainerRecord) -> Path:
        """Writes the record first: whatever is made after it will be found and removed after a crash."""
        bundle = self.bundle(uid, record)
        (bundle / "exit").mkdir(parents=True, mode=0o700)
        self.save(uid, record)
        return bundle

    def create(self, uid: str, record: ContainerRecord, spec: dict[str, Any], streams: Streams) -> None:
        bundle = self.bundle(uid, record)
        streams.log_path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(bundle / "config.json", encode(spec))
        made = monitor.create(
            self._settings, record.id, bundle, streams.log_path, stdin=streams.stdin, terminal=streams.terminal
        )
        record.pid, record.pid_started = made.process.pid, made.process.start_time
        record.monitor_pid, record.monitor_started = made.monitor.pid, made.monitor.start_time
        self.save(uid, record)

    def start(self, uid: str, record: ContainerRecord) -> None:
        self.runc.start(record.id)
        record.started_at = rfc3339_micro(self._clock.now())
        self.save(uid, record)

    def signal(self, record: ContainerRecord, number: int) -> None:
        try:
            ProcessId(record.pid, record.pid_started).signal(number)
        except ProcessGone:
            return

    def request_stop(self, uid: str, record: ContainerRecord) -> None:
        """Asks the program to end; remembers that we did."""
        if not record.stop_requested:
            record.stop_requested = True
            self.save(uid, record)
            self.signal(record, signal_number(record.stop_signal))

    def refresh(self, uid: str, record: ContainerRecord) -> bool:
        """Looks whether a container has ended meanwhile; says whether its record changed."""
        if not record.running or ProcessId(record.monitor_pid, record.monitor_started).alive():
            return False
        code = self._exit_code(uid, record)
        if code is None:
            if ProcessId(record.pid, record.pid_started).alive():
                return False
            self._ended(uid, record, LOST_EXIT_CODE)
            record.reason, record.message = "ContainerStatusUnknown", record.message or _LOST
            self.save(uid, record)
            return True
        self._ended(uid, record, code)
        return True

    def fail(self, uid: str, record: ContainerRecord, message: str) -> None:
        """Notes that a container could not be started; like a program that ended at once."""
        record.started_at = record.finished_at = rfc3339_micro(self._clock.now())
        record.exit_code, record.reason, record.message = START_EXIT_CODE, "StartError", message[:_MESSAGE_MAX]
        self.save(uid, record)
        self.release(uid, record)

    def release(self, uid: str, record: ContainerRecord) -> None:
        """Frees what an ended container holds in the kernel; its record and log stay."""
        self.runc.delete(record.id)
        drop_overlay(self.bundle(uid, record))

    def forget(self, uid: str, record: ContainerRecord) -> None:
        self.release(uid, record)
        remove_tree(self.bundle(uid, record))
        for path in (record.log_path, record.message_path):
            if path:
                Path(path).unlink(missing_ok=True)

    def save(self, uid: str, record: ContainerRecord) -> None:
        save(self.bundle(uid, record) / "record.json", record)

    def load_all(self, uid: str) -> list[ContainerRecord]:
        """All runs of all containers of a Pod, the oldest first."""
        directory = self._layout.sandbox(uid) / "containers"
        records = []
        for bundle in sorted(directory.iterdir()) if directory.is_dir() else []:
            try:
                records.append(load(bundle / "record.json", ContainerRecord))
            except FileNotFoundError:
                records.append(ContainerRecord(id=bundle.name, name=""))
        return sorted(records, key=lambda record: (record.created_at, record.attempt))

    def _exit_code(self, uid: str, record: ContainerRecord) -> int | None:
        path = self.bundle(uid, record) / "exit" / record.id
        try:
            return int(path.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _ended(self, uid: str, record: ContainerRecord, code: int) -> None:
        bundle = self.bundle(uid, record)
        record.exit_code = code
        record.finished_at = _time_of(bundle / "exit" / record.id) or rfc3339_micro(self._clock.now())
        killed_for_memory = (bundle / "oom").exists() and code != 0
        record.reason = "OOMKilled" if killed_for_memory else "Completed" if code == 0 else "Error"
        record.message = read_message(Path(record.message_path)) if record.message_path else ""
        self.save(uid, record)
        self.release(uid, record)


def signal_number(name: str) -> int:
    """`SIGTERM`, `TERM` or `15`, as images write it."""
    if name.isdigit():
        return int(name)
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    found = signal.Signals.__members__.get(full, signal.SIGTERM)
    return int(found)


def _time_of(path: Path) -> str:
    try:
        return rfc3339_micro(datetime.fromtimestamp(path.stat().st_mtime, UTC))
    except FileNotFoundError:
        return ""


def read_message(path: Path) -> str:
    """The container can write anything there, so: this file only, not what a link points to, and not too much."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as stream:
        return stream.read(_MESSAGE_MAX).decode(errors="replace").rstrip()


def last_log_lines(path: Path) -> str:
    """The end of a log without its time stamps: what a failed program said last."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(stream.seek(0, os.SEEK_END) - 4 * _LOG_MESSAGE_MAX, 0))
            lines = stream.read().decode(errors="replace").splitlines()[-_LOG_MESSAGE_LINES:]
    except OSError:
        return ""
    parts = [line.split(" ", 3) for line in lines]
    text = "".join(part[3] + ("" if part[2] == "P" else "\n") for part in parts if len(part) == 4)
    return text.rstrip("\n")[-_LOG_MESSAGE_MAX:]
