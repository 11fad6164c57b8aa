"""The supervisor: names, dead threads, stop order, signals. Each in a process or thread of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from framework.waiting import eventually

from virt_core.runtime.supervisor import Supervisor


def run_in_thread(supervisor: Supervisor) -> tuple[threading.Thread, list[int]]:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(supervisor.run(signals=False)), daemon=True)
    thread.start()
    return thread, codes


def test_stop_reaches_all_threads_and_the_code_is_zero() -> None:
    supervisor = Supervisor()
    names: list[str] = []
    for name in ("a", "b"):
        supervisor.thread(name, lambda stop: names.append(threading.current_thread().name) or stop.wait(10))
    thread, codes = run_in_thread(supervisor)
    eventually(lambda: sorted(names) == ["a", "b"])
    supervisor.request_stop()
    thread.join(5)
    assert codes == [0]


def test_a_thread_that_raises_ends_the_process_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    supervisor = Supervisor()

    def die(_stop: threading.Event) -> None:
        raise RuntimeError("kaput")

    supervisor.thread("worker", die)
    supervisor.thread("other", lambda stop: stop.wait(10))
    assert supervisor.run(signals=False) == 1
    log = capsys.readouterr().err
    assert '"thread":"worker"' in log
    assert "kaput" in log


def test_a_thread_that_just_ends_also_ends_the_process_unless_it_may() -> None:
    strict = Supervisor()
    strict.thread("short", lambda _stop: None)
    assert strict.run(signals=False) == 1
    lenient = Supervisor()
    lenient.thread("once", lambda _stop: None, may_end=True)
    lenient.thread("late", lambda _stop: lenient.request_stop(), may_end=True)
    assert lenient.run(signals=False) == 0


def test_hooks_run_backwards_and_all_of_them() -> None:
    supervisor = Supervisor()
    order: list[str] = []

    def broken() -> None:
        order.append("broken")
        raise RuntimeError("hook")

    supervisor.on_stop(lambda: order.append("first"))
    supervisor.on_stop(broken)
    supervisor.on_stop(lambda: order.append("last"))
    supervisor.thread("t", lambda _stop: supervisor.request_stop(), may_end=True)
    assert supervisor.run(signals=False) == 1
    assert order == ["last", "broken", "first"]


def test_a_thread_or_hook_that_hangs_is_named_and_does_not_block(capsys: pytest.CaptureFixture[str]) -> None:
    supervisor = Supervisor(grace_s=0.1)
    release = threading.Event()
    supervisor.thread("stubborn", lambda _stop: release.wait(10))
    supervisor.on_stop(lambda: release.wait(10))
    supervisor.request_stop()
    assert supervisor.run(signals=False) == 1
    assert "stubborn" in capsys.readouterr().err
    release.set()


def test_a_thread_may_be_added_while_running() -> None:
    supervisor = Supervisor()
    seen = threading.Event()
    thread, _ = run_in_thread(supervisor)
    eventually(lambda: supervisor._started)
    supervisor.thread("late", lambda stop: seen.set() or stop.wait(10))
    assert seen.wait(5)
    supervisor.request_stop()
    thread.join(5)
    assert not thread.is_alive()


PROGRAM = """
import sys
from virt_core.runtime.logs import configure
from virt_core.runtime.supervisor import Supervisor
configure("prog")
supervisor = Supervisor()
supervisor.thread("t", lambda stop: (print("up", flush=True), stop.wait(30)))
supervisor.run_and_exit()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_process_in_order(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 0
    assert b'"msg":"stopped"' in errors
