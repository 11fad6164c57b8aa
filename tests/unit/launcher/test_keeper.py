"""A launcher whose container is kept after a failure, with real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from framework.waiting import eventually

SCRIPT = """
import os, signal, subprocess, sys
from pathlib import Path
from virt_launcher.process.keeper import keep
keep(Path("{socket}"))
{launcher}
"""


@contextmanager
def kept(tmp_path: Path, launcher: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs `launcher` as the launcher's code."""
    script = SCRIPT.format(socket=tmp_path / "launcher-sock", launcher=launcher)
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_failure_leaves_the_container_but_nothing_of_the_machine(tmp_path: Path) -> None:
    pid_file, path = tmp_path / "pid", tmp_path / "launcher-sock"
    machine = f"""
machine = subprocess.Popen(["sleep", "1000"], start_new_session=True)
Path("{pid_file}").write_text(str(machine.pid))
os._exit(3)
"""
    with kept(tmp_path, machine) as process:
        eventually(path.exists)
        assert not is_alive(int(pid_file.read_text()))
        with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
            client.connect(str(path))
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 3


def test_a_good_end_ends_the_container(tmp_path: Path) -> None:
    with kept(tmp_path, "os._exit(0)") as process:
        assert process.wait(10) == 0
    assert not (tmp_path / "launcher-sock").exists()


def test_a_stop_reaches_the_launcher(tmp_path: Path) -> None:
    waits = f'Path("{tmp_path}/up").touch(); signal.sigwait({{signal.SIGTERM}}); os._exit(0)'
    with kept(tmp_path, waits) as process:
        eventually((tmp_path / "up").exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
