"""Logs of bounded size: their end is kept, the writer keeps its descriptor."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.framework.waiting import eventually
from virt_launcher.machine.logs import BoundedLogs, rotate


def test_the_end_is_moved_aside_and_the_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"old " * 10 + b"new")
        rotate(path, 7)
        assert path.read_bytes() == b""
        assert (tmp_path / "log.1").read_bytes() == b"old new"
        writer.write(b"next")
    assert path.read_bytes() == b"next", "no hole in front of it"
    rotate(path, 7)
    assert (tmp_path / "log.1").read_bytes() == b"next"


def test_only_its_owner_reads_the_older_part(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 10)
    rotate(tmp_path / "log", 5)
    assert (tmp_path / "log.1").stat().st_mode & 0o777 == 0o600


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"keep")
    (tmp_path / "log").symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"):
        rotate(tmp_path / "log", 1)
    assert (tmp_path / "other").read_bytes() == b"keep"


def test_a_log_is_cut_when_there_is_no_room_for_the_older_part(tmp_path: Path) -> None:
    log, missing = tmp_path / "log", tmp_path / "missing"
    log.write_bytes(b"x" * 10)
    (tmp_path / "log.1").mkdir()
    stop = threading.Event()
    thread = threading.Thread(target=BoundedLogs((missing, log), 5, period_s=0.01).run, args=(stop,))
    thread.start()
    try:
        eventually(lambda: log.stat().st_size == 0)
    finally:
        stop.set()
        thread.join(5)
    assert not thread.is_alive()
    assert os.listdir(tmp_path / "log.1") == []
