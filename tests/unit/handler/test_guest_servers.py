"""Servers in Pods whose end somebody hears of, with real processes."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.framework.waiting import eventually

from virt_core.apis.netplan import NetServer
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.procs import ProcessId
from virt_handler.decisions.synchronized import converge
from virt_handler.decisions.vocabulary import Action, Task, Work
from virt_handler.loop.records import GhostRecord
from virt_handler.loop.sessions import Session
from virt_handler.loop.watcher import Watcher
from virt_handler.pods.guestservers import GuestServers

from .test_nics import domain, view, vmi, wired

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ERROR = "the DHCP server of eth0 has ended; it is started anew"


def session() -> Session:
    return Session(GhostRecord(pod_uid="pod-1", vmi_uid="uid", namespace="ns", name="one"), FakeClock())


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    made, stop = Watcher(), threading.Event()
    thread = threading.Thread(target=made.run, args=(stop,))
    thread.start()
    yield made
    stop.set()
    thread.join(10)
    made.close()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as child:
        yield child
        child.kill()


def server(process: subprocess.Popen[bytes]) -> NetServer:
    return NetServer(name="eth0", pid=process.pid, start_time=ProcessId.of(process.pid).start_time)


def test_the_end_of_a_server_is_heard_of(watcher: Watcher, process: subprocess.Popen[bytes]) -> None:
    lost: list[Session] = []
    servers, one = GuestServers(watcher, lost.append), session()
    servers.follow(one, [server(process)])
    assert one.view().network.task is Task.IDLE
    process.kill()
    eventually(lambda: lost == [one])
    network = one.view().network
    assert (network.task, network.error, network.fatal) == (Task.FAILED, ERROR, False)


def test_one_that_ended_while_nobody_looked(watcher: Watcher, process: subprocess.Popen[bytes]) -> None:
    """After a restart of virt-handler the record names it; its number may be another's by now."""
    lost: list[Session] = []
    was = server(process)
    GuestServers(watcher, lost.append).follow(session(), [NetServer("eth0", was.pid, was.start_time + 1)])
    assert len(lost) == 1


def test_a_forgotten_server_may_end(watcher: Watcher, process: subprocess.Popen[bytes]) -> None:
    """With its Pod, or because another one took its place."""
    lost: list[Session] = []
    servers, one = GuestServers(watcher, lost.append), session()
    servers.follow(one, [server(process)])
    servers.follow(one, [server(process)])
    with subprocess.Popen(["sleep", "60"]) as other:
        servers.follow(one, [server(other)])
        process.kill()
        process.wait(10)
        servers.forget("pod-1")
        other.kill()
    with subprocess.Popen(["sleep", "60"]) as third:
        servers.follow(one, [server(third)])
        third.kill()
        eventually(lambda: len(lost) == 1)
    servers.forget("pod-1")


def test_what_was_lost_is_wired_again_after_a_pause() -> None:
    machine, has = vmi(told="multus-status"), domain("default", "blue")
    failed = Work(Task.FAILED, error=ERROR, retry_at=NOW + timedelta(seconds=2))
    seen = view(wired("default", "blue"), has, network=failed)
    waiting = converge(machine, seen, NOW)
    assert waiting is not None
    later = converge(machine, seen, NOW + timedelta(seconds=2))
    assert later is not None
    assert (waiting.action, later.action) == (Action.SYNC, Action.WIRE_NETWORK)
