"""Children with real processes: ours keep their status, strangers are reported, signals arrive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from virt_launcher.process.children import Ended, ended_from_status

#: The reaper takes every child of its process, so each scenario has a process of its own.
PRELUDE = """
import os, signal, subprocess, sys, threading
from virt_launcher.process.children import Children, block_signals
block_signals()
children = Children()
children.adopt_orphans()
seen, stop = [], threading.Event()
children.on_orphan(seen.append)
thread = threading.Thread(target=children.run, args=(stop,), daemon=True)
env = {"PATH": "/usr/bin:/bin"}
def finish():
    stop.set(); children.wake(); thread.join(5); assert not thread.is_alive()
"""


def scenario(body: str) -> None:
    script = PRELUDE + textwrap.dedent(body)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 0, result.stderr


def test_our_child_keeps_its_exit_code(tmp_path: Path) -> None:
    scenario(f"""
        thread.start()
        child = children.spawn(["/bin/sh", "-c", "echo words; exit 7"], env=env, output="{tmp_path}/out")
        ended = child.wait(10)
        assert (ended.exit_code, ended.signal_number, ended.clean) == (7, None, False)
        assert open("{tmp_path}/out").read() == "words\\n"
        assert seen == []
        finish()
    """)


def test_a_child_that_ended_before_the_reaper_ran_is_not_lost() -> None:
    scenario("""
        child = children.spawn(["/bin/true"], env=env)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        thread.start()
        assert child.wait(10).clean
        finish()
    """)


def test_an_orphan_is_adopted_and_its_end_is_known(tmp_path: Path) -> None:
    scenario(f"""
        thread.start()
        script = "sleep 60 & echo $! > {tmp_path}/pid; exit 0"
        assert children.spawn(["/bin/sh", "-c", script], env=env).wait(10).clean
        pid = int(open("{tmp_path}/pid").read())
        os.kill(pid, signal.SIGKILL)
        ended = children.status_of(pid, 10)
        assert ended.signal_number == 9, ended
        assert [e.pid for e in seen] == [pid]
        finish()
    """)


def test_children_do_not_inherit_our_signal_mask() -> None:
    scenario("""
        thread.start()
        child = children.spawn(["/bin/sleep", "60"], env=env)
        child.kill(signal.SIGTERM)
        assert child.wait(10).signal_number == signal.SIGTERM
        finish()
    """)


def test_stop_signals_reach_the_handler() -> None:
    scenario("""
        got = threading.Event()
        children.on_signal(lambda number: got.set() if number == signal.SIGTERM else None)
        thread.start()
        os.kill(os.getpid(), signal.SIGTERM)
        assert got.wait(10)
        finish()
    """)


def test_an_unknown_process_has_no_status() -> None:
    scenario("""
        thread.start()
        assert children.status_of(999999, 0.01) is None
        finish()
    """)


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [
        (Ended(1, 3, None), "QEMU exited with code 3"),
        (Ended(1, None, signal.SIGKILL), "QEMU was killed by signal 9 (SIGKILL)"),
        (Ended(1, None, 63), "QEMU was killed by signal 63"),
    ],
)
def test_one_sentence(ended: Ended, sentence: str) -> None:
    assert ended.describe("QEMU") == sentence


def test_status_words() -> None:
    assert ended_from_status(5, 3 << 8) == Ended(5, 3, None)
    assert ended_from_status(5, 9) == Ended(5, None, 9)
    assert os.WIFSIGNALED(9)
