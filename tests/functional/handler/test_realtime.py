"""vCPUs of a real-time machine run before everything else; nothing else that a Pod has does, and nobody inherits it.

The machine is a real one; who pretends to be one is a Python process whose threads bear the names.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import eventually

from tests.unit.launcher.cases import Case, vmi_of
from virt_core.runtime.procs import children
from virt_handler.pods import memlock, realtime

from .conftest import Node
from .fakelauncher import FakeLauncher
from .test_cgroups import hierarchy
from .test_handler import HAND_OVER_NOW

pytestmark = pytest.mark.root
FIFO = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
#: Tells the number of its thread for each name that it is given.
PRETENDER = """
import os, sys, threading
def run(name):
    open("/proc/thread-self/comm", "w").write(name)
    os.write(1, b"%d\\n" % threading.get_native_id())
    threading.Event().wait()
for name in sys.argv[1:]:
    threading.Thread(target=run, args=(name,), daemon=True).start()
threading.Event().wait()
"""
#: A launcher: starts each line of its input as a program, and waits.
LAUNCHER = """
import json, subprocess, sys
for line in sys.stdin:
    subprocess.Popen(json.loads(line), stdin=subprocess.DEVNULL)
"""


def may_schedule() -> bool:
    command = [sys.executable, "-c", "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


needs_real_time = pytest.mark.skipif(not may_schedule(), reason="nobody here may schedule threads in real time")


class Pod:
    """A launcher, and what it has started."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self.pid = process, process.pid
        self.pidfd = os.pidfd_open(process.pid)

    def start(self, *command: str, threads: int) -> list[int]:
        """The numbers that so many threads of it have told."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return [int(self._process.stdout.readline()) for _ in range(threads)]

    def pretend(self, *names: str) -> list[int]:
        return self.start(sys.executable, "-c", PRETENDER, *names, threads=len(names))

    def give_priority(self, **cpu: Any) -> None:
        realtime.give_priority(self.pid, self.pidfd, vmi_of(Case(domain={"cpu": {"realtime": {}} | cpu})))

    def end(self) -> None:
        for child in children(self.pid):
            os.kill(child, signal.SIGKILL)
        self._process.kill()
        os.close(self.pidfd)


@contextmanager
def a_launcher() -> Iterator[Pod]:
    command = [sys.executable, "-c", LAUNCHER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        pod = Pod(process)
        try:
            yield pod
        finally:
            pod.end()


@pytest.fixture
def pod() -> Iterator[Pod]:
    with a_launcher() as found:
        yield found


def policies(threads: list[int]) -> list[int]:
    return [os.sched_getscheduler(thread) for thread in threads]


@needs_real_time
def test_the_masked_vcpus_alone_go_first(pod: Pod) -> None:
    threads = pod.pretend("CPU 1/KVM", "worker", "CPU 0/KVM")
    by_name = {(Path(f"/proc/{tid}/comm").read_text().strip()): tid for tid in threads}
    pod.give_priority(cores=2, realtime={"mask": "0-1,^0"})
    assert os.sched_getscheduler(by_name["CPU 1/KVM"]) == FIFO
    assert os.sched_getparam(by_name["CPU 1/KVM"]).sched_priority == 1
    assert policies([by_name["CPU 0/KVM"], by_name["worker"], pod.pid]) == [os.SCHED_OTHER] * 3


@needs_real_time
def test_no_more_threads_than_the_machine_has_vcpus(pod: Pod) -> None:
    """Whoever has taken over a launcher gains nothing by many threads of such names."""
    threads = pod.pretend(*(f"CPU {number}/KVM" for number in range(6)))
    pod.give_priority(cores=2)
    assert sorted(policies(threads)) == [os.SCHED_OTHER] * 4 + [FIFO] * 2


def two_machines(pod: Pod) -> list[int]:
    return pod.pretend("CPU 0/KVM") + pod.pretend("CPU 0/KVM")


def no_machine(pod: Pod) -> list[int]:
    return pod.pretend("worker")


def a_vcpu_too_few(pod: Pod) -> list[int]:
    return pod.pretend("CPU 1/KVM")


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (two_machines, "2 processes of the Pod have threads of vCPUs; one must"),
        (no_machine, "0 processes of the Pod have threads of vCPUs; one must"),
        (a_vcpu_too_few, "no thread of its own for vCPU 0"),
    ],
)
def test_who_is_not_the_machine_gets_nothing(pod: Pod, who: Callable[[Pod], list[int]], why: str) -> None:
    threads = who(pod)
    with pytest.raises(OSError, match=why):
        pod.give_priority(cores=2)
    assert set(policies(threads)) == {os.SCHED_OTHER}


def test_a_machine_of_another_launcher_is_not_touched(pod: Pod) -> None:
    with a_launcher() as other:
        threads = other.pretend("CPU 0/KVM")
        with pytest.raises(OSError, match="0 processes"):
            pod.give_priority()
        assert policies(threads) == [os.SCHED_OTHER]


def test_a_launcher_that_ended_has_no_machine(pod: Pod) -> None:
    os.kill(pod.pid, signal.SIGKILL)
    os.waitid(os.P_PIDFD, pod.pidfd, os.WEXITED | os.WNOWAIT)
    with pytest.raises(OSError, match=r"0 processes|No such process|has ended"):
        pod.give_priority()


def test_a_child_in_another_cgroup_is_not_the_machine(pod: Pod) -> None:
    threads = pod.pretend("CPU 0/KVM")
    place = hierarchy()
    if place is None:
        pytest.skip("no writable cgroup hierarchy here")
    group = place / f"virtpod-{uuid.uuid4()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    (child,) = children(pod.pid)
    try:
        (group / "cgroup.procs").write_text(str(child))
        with pytest.raises(OSError, match="0 processes"):
            pod.give_priority()
        assert policies(threads) == [os.SCHED_OTHER]
    finally:
        os.kill(child, signal.SIGKILL)
        eventually(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


@contextmanager
def machine(name: str) -> Iterator[list[int]]:
    """Of a launcher that is the test's own process."""
    command = [sys.executable, "-c", PRETENDER, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield [int(process.stdout.readline())]
        finally:
            process.kill()


@pytest.fixture
def timely(node: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    """With a real-time VMI. What may lock memory is another test's matter, and not every machine lets us say."""
    monkeypatch.setattr(memlock, "lift", lambda *_: None)
    node.put(**HAND_OVER_NOW, spec={"domain": {"devices": {}, "cpu": {"cores": 1, "realtime": {}}}})
    return node


@needs_real_time
def test_a_guest_that_runs_has_its_vcpus_scheduled(timely: Node, launcher: FakeLauncher) -> None:
    with machine("CPU 0/KVM") as threads, timely.handler():
        launcher.open()
        timely.phase("Running")
        eventually(lambda: policies(threads) == [FIFO])
        assert not timely.condition("Synchronized")


@needs_real_time
def test_what_a_handler_before_us_did_not_come_to_is_done(timely: Node, launcher: FakeLauncher) -> None:
    with machine("CPU 0/KVM") as threads:
        with timely.handler():
            launcher.open()
            timely.phase("Running")
            eventually(lambda: policies(threads) == [FIFO])
        os.sched_setscheduler(threads[0], os.SCHED_OTHER, os.sched_param(0))
        launcher._channel = None
        with timely.handler():
            eventually(lambda: policies(threads) == [FIFO])


@needs_real_time
def test_a_machine_whose_vcpus_are_not_scheduled_says_so_until_they_are(timely: Node, launcher: FakeLauncher) -> None:
    with timely.handler():
        launcher.open()
        eventually(lambda: "real time: 0 processes" in timely.condition("Synchronized").get("message", ""))
        with machine("CPU 0/KVM") as threads:
            eventually(lambda: policies(threads) == [FIFO], 20.0)
            eventually(lambda: not timely.condition("Synchronized"))
