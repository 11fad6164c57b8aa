"""The resident virt-netsetup with real Pods: children and parents that die at the worst moment, and what it may do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from virt_handler.decisions.netplans import NetworkError
from virt_netsetup.confine import OURS

from .lab import Lab, eventually
from .resident import PROGRAM, Bomb, Resident
from .test_netsetup import BINDINGS, interface

pytestmark = pytest.mark.root


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "state") as made:
        yield made


@pytest.fixture(scope="module")
def resident() -> Iterator[Resident]:
    with Resident() as made:
        yield made


@pytest.mark.parametrize("binding", BINDINGS)
def test_the_same_as_by_hand(resident: Resident, lab: Lab, binding: str) -> None:
    before = lab.snapshot()
    report = resident.ask(lab, "setup", interface(binding))
    wired, servers = lab.snapshot(), lab.servers()
    assert lab.netsetup("check", interface(binding)) == report
    assert lab.netsetup("setup", interface(binding)) == report
    assert (lab.snapshot(), lab.servers()) == (wired, servers)
    assert resident.ask(lab, "teardown", []) == {}
    assert (lab.snapshot(), lab.servers()) == (before, [])
    assert not list(lab.state.iterdir())


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_child_killed_after_any_change_leaves_nothing(lab: Lab, tmp_path: Path, binding: str) -> None:
    """Setup is then done again and works, or the Pod is taken down and nothing of it is left."""
    bomb, before, number = Bomb(tmp_path / "bomb"), lab.snapshot(), 0
    with Resident(bomb.command) as resident:
        while True:
            number += 1
            bomb.arm(number)
            try:
                resident.ask(lab, "setup", interface(binding))
                break
            except NetworkError as error:
                assert "was ended by SIGKILL" in str(error)  # noqa: PT017
            bomb.disarm()
            if number % 2:
                report = resident.ask(lab, "setup", interface(binding))
                assert resident.ask(lab, "check", interface(binding)) == report
                assert len(lab.servers()) == 1
            resident.ask(lab, "teardown", [])
            eventually(lambda: not lab.servers())
            assert lab.snapshot() == before, f"after change {number}"
            assert not list(lab.state.iterdir()), f"after change {number}"
    # As many as the binding makes changes; fewer would mean that nothing was tried.
    assert number > 15


def test_the_parent_killed_in_the_midst(lab: Lab, tmp_path: Path) -> None:
    bomb, before = Bomb(tmp_path / "bomb"), lab.snapshot()
    bomb.arm(8, "hang")
    with Resident(bomb.command) as resident, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(resident.ask, lab, "setup", interface("masquerade"))
        eventually(bomb.there.exists, 20)
        first, [child] = resident.pid, resident.children()
        os.kill(first, signal.SIGKILL)
        with pytest.raises(NetworkError, match="virt-netsetup ended before it had answered"):
            waiting.result(20)
        eventually(lambda: not Path(f"/proc/{child}").exists())
        bomb.disarm()
        assert resident.ask(lab, "setup", interface("masquerade"))["interfaces"]
        assert resident.pid != first
        resident.ask(lab, "teardown", [])
    assert (lab.snapshot(), lab.servers()) == (before, [])


def test_a_child_that_hangs_is_ended(lab: Lab, tmp_path: Path) -> None:
    bomb, before = Bomb(tmp_path / "bomb"), lab.snapshot()
    bomb.arm(8, "hang")
    with Resident(bomb.command, within_s=2) as resident:
        with pytest.raises(NetworkError, match="virt-netsetup did not end within 2 s"):
            resident.ask(lab, "setup", interface("masquerade"))
        eventually(lambda: not resident.children())
        bomb.disarm()
        assert resident.ask(lab, "setup", interface("masquerade"))["interfaces"]
        resident.ask(lab, "teardown", [])
    assert (lab.snapshot(), lab.servers()) == (before, [])


def test_ten_at_once(resident: Resident, tmp_path: Path) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(10) as pool:
        labs = [stack.enter_context(Lab(tmp_path / "state", "4")) for _ in range(10)]
        asked = [pool.submit(resident.ask, each, "setup", interface("masquerade")) for each in labs]
        assert [report.result(60)["interfaces"][0]["tap"] for report in asked] == ["tap0"] * 10
        assert [len(each.servers()) for each in labs] == [1] * 10
        for done in [pool.submit(resident.ask, each, "teardown", []) for each in labs]:
            assert done.result(60) == {}
        assert [each.servers() for each in labs] == [[]] * 10
        eventually(lambda: not resident.children())
    assert not list((tmp_path / "state").iterdir())


def test_what_is_no_namespace_is_refused(resident: Resident, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *more: real("/dev/null" if "netns" in str(path) else path, *more))
    with pytest.raises(NetworkError, match="netns: the Pod's network namespace cannot be entered"):
        resident.ask(lab, "setup", interface("masquerade"))


def test_a_number_that_changed_hands_is_not_believed(resident: Resident, lab: Lab) -> None:
    """The Pod's process has ended, and its number is another's by now: no server is put beside that one."""
    before = lab.snapshot()
    ended = subprocess.Popen(["true"])
    process = os.pidfd_open(ended.pid)
    ended.wait(timeout=20)
    other = lab.start(lab.pod, "print('ready', flush=True); input()")
    with pytest.raises(NetworkError, match=f"process {other.pid} of the Pod has ended"):
        resident.ask(lab, "setup", interface("masquerade"), process, podPid=other.pid)
    os.close(process)
    assert (lab.snapshot(), lab.servers()) == (before, [])


def test_it_has_no_more_rights_than_it_needs(resident: Resident, lab: Lab) -> None:
    resident.ask(lab, "check", [])
    lines = Path(f"/proc/{resident.pid}/status").read_text().splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    mask = f"{sum(1 << each for each in OURS):016x}"
    assert [status[name] for name in ("CapPrm", "CapEff", "CapBnd")] == [mask] * 3
    assert [status[name] for name in ("CapInh", "CapAmb")] == [f"{0:016x}"] * 2
    assert [status[name] for name in ("NoNewPrivs", "Seccomp", "Threads")] == ["1", "2", "1"]
    for kind in ("net", "ipc"):
        assert os.readlink(f"/proc/{resident.pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
    eventually(lambda: len(sockets_of(resident.pid)) == 1)


def sockets_of(pid: int) -> set[str]:
    """Its only door is the one that it was given; others are of requests that it is about to forget."""
    found = set()
    for each in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{each}"))
    return {each for each in found if each.startswith("socket:")}


#: As the parent of all children, before it takes a request; then what wiring never needs.
TEMPTED = """
import ctypes, json, os, socket
from virt_netsetup.confine import retire
retire()
libc = ctypes.CDLL(None, use_errno=True)
def called(number, *words):
    ctypes.set_errno(0)
    return libc.syscall(number, *words) >= 0
open("/proc/sys/kernel/hostname").close()
done = {
    "ptrace": called(101, 16, os.getppid(), 0, 0),
    "module": called(175, b"x", 1, b"") or ctypes.get_errno() not in (1,),
    "keyring": called(250, 0, -3, 1),
    "program for the kernel": called(321, 0, 0, 0) or ctypes.get_errno() not in (1,),
    "device": called(133, b"/dev/shm/virt-netsetup-tempted", 0o20600, 0x0101),
    "clock": called(227, 0, b"\\0" * 16),
    "the other ABI": called(0x40000000 | 39),
    "raw disk or port": called(172, 3),
}
print(json.dumps({"done": [name for name, it in done.items() if it], "links": [n for _, n in socket.if_nameindex()]}))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the calls are those of x86_64")
def test_it_cannot_change_the_machine() -> None:
    done = subprocess.run([sys.executable, "-c", TEMPTED], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == {"done": [], "links": ["lo"]}


def test_it_ends_with_whoever_asks() -> None:
    """virt-handler killed: its end of the socket is closed, and nothing stays behind."""
    code = (
        "import socket, subprocess, sys\n"
        "ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        f"child = subprocess.Popen({[*PROGRAM, 'serve']!r}, stdin=theirs, stdout=subprocess.DEVNULL)\n"
        "theirs.close()\n"
        "print(child.pid, flush=True)\n"
        "input()\n"
    )
    handler = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert handler.stdout is not None
    assert handler.stdin is not None
    pid = int(handler.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    handler.kill()
    handler.wait(timeout=20)
    handler.stdin.close()
    handler.stdout.close()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), 20)
