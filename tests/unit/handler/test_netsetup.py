"""virt-netsetup as virt-handler keeps and asks it: what becomes of a Pod whose child, or whose server, goes wrong."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from framework import fake_netsetup
from framework.fake_netsetup import ANSWER, CRASH, HANG, KILLED, NONSENSE, PLAN
from framework.vmis import POD_UID, vmi
from framework.waiting import eventually, running

from virt_core.apis.base import decode
from virt_core.apis.netplan import DESCRIPTORS, REQUEST, NetPlan, NetReport
from virt_handler.decisions import netplans
from virt_handler.pods import isolation
from virt_handler.pods.netsetup import Netsetup

Ask = Callable[[], NetReport]


def asking(server: Netsetup) -> Ask:
    def ask() -> NetReport:
        netns = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        process = isolation.PodProcess(os.open("/proc/self/ns/pid", os.O_RDONLY), os.pidfd_open(os.getpid()))
        try:
            return server.ask(netplans.plan(vmi(), POD_UID, pod_pid=1, state_dir="/state"), process, netns)
        finally:
            process.close()
            os.close(netns)

    return ask


@contextmanager
def serving(server: Netsetup) -> Iterator[Netsetup]:
    descriptors = len(os.listdir("/proc/self/fd"))
    with running(server.run):
        try:
            yield server
        finally:
            pid = server.pid
            server.close()
    assert not pid or not Path(f"/proc/{pid}").exists(), "the server outlived us"
    # It had one socket before this, which is closed now.
    assert len(os.listdir("/proc/self/fd")) <= descriptors, "descriptors were left open"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Netsetup]:
    with serving(Netsetup(fake_netsetup.command(tmp_path / "x"))) as made:
        yield made


def test_the_plan_gets_there_and_the_report_back(server: Netsetup, tmp_path: Path) -> None:
    report = asking(server)()
    assert [nic.tap for nic in report.interfaces] == ["tap0"]
    plan = decode((tmp_path / f"x{PLAN}").read_bytes(), NetPlan)
    assert (plan.pod_uid, plan.state_dir, len(plan.interfaces)) == (POD_UID, "/state", 1)


@pytest.mark.parametrize(
    ("answer", "words", "fatal"),
    [
        (b'{"error":{"step":"nat","message":"no nft","critical":true}}', "^nat: no nft$", True),
        (CRASH, "virt-netsetup ended with code 1 before it had answered", False),
        (KILLED, "virt-netsetup was ended by SIGKILL before it had answered", False),
        (NONSENSE, "answer cannot be read", False),
    ],
)
def test_what_takes_a_child_down_takes_nobody_else(
    server: Netsetup, tmp_path: Path, answer: bytes, words: str, fatal: bool
) -> None:
    ask = asking(server)
    ask()
    pid = server.pid
    (tmp_path / f"x{ANSWER}").write_bytes(answer)
    with pytest.raises(netplans.NetworkError, match=words) as caught:
        ask()
    assert caught.value.fatal is fatal
    (tmp_path / f"x{ANSWER}").unlink()
    assert ask().interfaces
    assert server.pid == pid


def test_a_child_that_hangs_is_ended(tmp_path: Path) -> None:
    (tmp_path / f"x{ANSWER}").write_bytes(HANG)
    with serving(Netsetup(fake_netsetup.command(tmp_path / "x"), within_s=0.2)) as server:
        with pytest.raises(netplans.NetworkError, match=r"did not end within 0\.2 s"):
            asking(server)()
        eventually(lambda: not children(server.pid))
        (tmp_path / f"x{ANSWER}").unlink()
        assert asking(server)().interfaces


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_server_that_dies_is_told_and_replaced(server: Netsetup, tmp_path: Path) -> None:
    ask = asking(server)
    ask()
    first = server.pid
    eventually(lambda: not children(first))  # That of the first question.
    (tmp_path / f"x{ANSWER}").write_bytes(HANG)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask)
        [child] = eventually(lambda: children(first))
        os.kill(first, signal.SIGKILL)
        with pytest.raises(netplans.NetworkError, match="virt-netsetup ended before it had answered"):
            waiting.result(20)
    eventually(lambda: not Path(f"/proc/{child}").exists())
    (tmp_path / f"x{ANSWER}").unlink()
    assert ask().interfaces, "a request that comes between two servers waits for the next"
    assert server.pid not in (0, first)


def test_a_server_that_hangs_is_replaced(tmp_path: Path) -> None:
    with serving(Netsetup(fake_netsetup.command(tmp_path / "x"), timeout_s=0.3, within_s=0.1)) as server:
        ask = asking(server)
        eventually(lambda: answered(ask), 20)
        first = server.pid
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(netplans.NetworkError, match=r"did not answer within 0\.3 s"):
            eventually(ask)
        eventually(lambda: answered(ask) and server.pid not in (0, first), 20)


def answered(ask: Ask) -> bool:
    try:
        return bool(ask().interfaces)
    except netplans.NetworkError:
        return False


def test_an_absent_program_is_named() -> None:
    with (
        serving(Netsetup(["no-such-program"])) as server,
        pytest.raises(netplans.NetworkError, match="no-such-program is not installed"),
    ):
        asking(server)()


def test_ten_at_once(server: Netsetup) -> None:
    with ThreadPoolExecutor(10) as pool:
        reports = [future.result(30) for future in [pool.submit(asking(server)) for _ in range(10)]]
    assert all(report.interfaces for report in reports)
    eventually(lambda: not children(server.pid))


@pytest.mark.parametrize("data", [REQUEST, b"x", b"x" * 5000, REQUEST + b"x"])
@pytest.mark.parametrize("count", [0, 1, len(DESCRIPTORS), len(DESCRIPTORS) + 3])
def test_garbage_on_the_socket_is_nobodys_request(server: Netsetup, data: bytes, count: int) -> None:
    ask = asking(server)
    ask()
    pid = server.pid
    eventually(lambda: not children(pid))
    open_before = len(os.listdir(f"/proc/{pid}/fd"))
    null = os.open("/dev/null", os.O_RDONLY)
    socket.send_fds(server._line.ours, [data], [null] * count)
    os.close(null)
    assert ask().interfaces
    assert server.pid == pid
    eventually(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= open_before)
