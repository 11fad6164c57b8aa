"""The SQLite file and the one thread that writes it.

Every write waits for the disk. So that many writers do not wait for each other, the thread takes everything that has
queued up while the disk was busy and commits it at once (group commit). Copying the WAL into the main file is done by a
second thread, so that no writer pays for it.
"""

from __future__ import annotations

import fcntl
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from virt_core.runtime.logs import get_logger
from virt_local.apiserver.storage.record import Key

log = get_logger("virt-local.apiserver.storage")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (resource, namespace, name));
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT OR IGNORE INTO meta VALUES ('revision', 0);
"""
_PUT = "INSERT OR REPLACE INTO objects (resource, namespace, name, revision, data) VALUES (?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?"

_BATCH_LIMIT = 512
_CHECKPOINT_EVERY_S = 5.0
_WAL_LIMIT_BYTES = 64 << 20


class Write:
    """One change for the file: new bytes for a key, or None to delete it."""

    __slots__ = ("data", "key", "revision", "token")

    def __init__(self, key: Key, revision: int, data: bytes | None, token: object) -> None:
        self.key = key
        self.revision = revision
        self.data = data
        self.token = token


class InUse(Exception):
    """Another process has this database open: two of them would not see each other's writes."""


def _lock(path: Path) -> IO[bytes]:
    """A lock that ends with the process, however it ends."""
    file = path.with_name(path.name + ".lock").open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InUse(f"{path} is in use by another API server") from None
    return file


Done = Callable[[Sequence[Write], Exception | None], None]


class Database:
    """Call `load`, then `start` with a callback that the writer thread calls after each commit, in order."""

    def __init__(self, path: Path, *, synchronous: str = "FULL") -> None:
        self._path = path
        self._synchronous = synchronous
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._done: Done | None = None
        self._lock = _lock(path)
        self._connection = self._connect()
        self._connection.executescript(_SCHEMA)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    def load(self) -> Iterator[tuple[str, int, bytes]]:
        yield from self._connection.execute("SELECT resource, revision, data FROM objects")

    def revision(self) -> int:
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'revision'").fetchone()
        return int(row[0])

    def start(self, done: Done) -> None:
        self._done = done
        for name, target in (("storage-writer", self._write_loop), ("storage-checkpoint", self._checkpoint_loop)):
            thread = threading.Thread(target=target, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def submit(self, write: Write) -> None:
        self._queue.put(write)

    def close(self, timeout_s: float = 30.0) -> None:
        """Writes what is queued, then closes the file."""
        self._queue.put(None)
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout_s)
        self._connection.close()
        self._lock.close()

    def _write_loop(self) -> None:
        running = True
        while running:
            batch, running = self._next_batch()
            if batch:
                error = self._commit(batch)
                if self._done is not None:
                    self._done(batch, error)

    def _next_batch(self) -> tuple[list[Write], bool]:
        batch: list[Write] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) >= _BATCH_LIMIT:
                return batch, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _commit(self, batch: list[Write]) -> Exception | None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for write in batch:
                self._execute(write)
            self._connection.execute("UPDATE meta SET value = ? WHERE key = 'revision'", (batch[-1].revision,))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            log.error("a write to the database failed", path=str(self._path), writes=len(batch), error=str(error))
            self._roll_back()
            return error
        return None

    def _execute(self, write: Write) -> None:
        if write.data is None:
            self._connection.execute(_DELETE, write.key)
        else:
            self._connection.execute(_PUT, (*write.key, write.revision, write.data))

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _checkpoint_loop(self) -> None:
        connection = self._connect()
        while not self._stop.wait(_CHECKPOINT_EVERY_S):
            self._checkpoint(connection)
        connection.close()

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """PASSIVE never makes the writer wait. Only a WAL that keeps growing is cut, which does, for one sync."""
        wal = self._path.with_name(self._path.name + "-wal")
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            if wal.exists() and wal.stat().st_size > _WAL_LIMIT_BYTES:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            log.warning("the write-ahead log could not be copied into the database", error=str(error))
