"""Probes that ask the guest: `virt-probe`, the launcher's door for it, and the commands behind it."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_core.apis.base import from_plain
from virt_core.apis.guestprobes import asks_guest
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.errors import LauncherError, WrongStateError
from virt_launcher.guestprobe import ask
from virt_launcher.guestprobe.door import ProbeDoor
from virt_launcher.hypervisor.agent import MAX_ANSWER, MAX_OUTPUT, exit_from_answer, number_from_answer
from virt_launcher.hypervisor.ports import AgentReport, GuestExit
from virt_launcher.machine.guest_commands import MAX_RUNNING, GuestCommands
from virt_launcher.machine.manager import SyncOptions


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    made = make_parts(tmp_path)
    made.manager.sync(plain_vmi(), SyncOptions(allow_emulation=True))
    made.hypervisor.report = AgentReport()
    return made


@pytest.fixture
def door(parts: Parts, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / ask.SOCKET
    opened = ProbeDoor(path, parts.manager.commands)
    opened.open()
    opened.open()
    yield path
    opened.close()


def commands_of(parts: Parts) -> GuestCommands:
    """With a clock that runs only while somebody waits."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return GuestCommands(parts.hypervisor, parts.manager._require, lambda: now[0], sleep)


def test_a_command_returns_its_code_and_output(parts: Parts, door: Path) -> None:
    parts.hypervisor.exits["/bin/check"] = GuestExit(3, "not yet\n")
    answer = ask.ask(str(door), ask.parse(["--timeoutSeconds", "2", "--command", "/bin/check", "--", "-v", "--", "x"]))
    assert answer == {"exitCode": 3, "output": "not yet\n"}
    assert "start_in_guest /bin/check -v -- x" in parts.hypervisor.calls


def test_a_ping_needs_the_agent(parts: Parts, door: Path) -> None:
    request = ask.parse(["--guestAgentPing"])
    assert ask.ask(str(door), request) == {"exitCode": 0}
    parts.hypervisor.report = None
    assert "guest agent is not connected" in str(ask.ask(str(door), request)["error"])
    parts.manager.pause()
    assert ask.ask(str(door), request) == {"exitCode": 0}


def test_a_command_that_does_not_end_is_given_up(parts: Parts) -> None:
    with pytest.raises(LauncherError, match="/bin/sleep did not end within 7 s"):
        commands_of(parts).run("/bin/sleep", (), 7)


def test_commands_that_never_end_do_not_pile_up(parts: Parts) -> None:
    commands = commands_of(parts)
    for _ in range(MAX_RUNNING):
        with pytest.raises(LauncherError, match="did not end"):
            commands.run("/bin/sleep", (), 1)
    with pytest.raises(WrongStateError, match=f"{MAX_RUNNING} earlier commands"):
        commands.run("/bin/true", (), 1)
    parts.hypervisor.exits = {"/bin/sleep": GuestExit(0), "/bin/true": GuestExit(0)}
    assert commands.run("/bin/true", (), 1).exit_code == 0


def test_nothing_runs_in_a_paused_guest(parts: Parts) -> None:
    parts.manager.pause()
    with pytest.raises(WrongStateError, match="paused"):
        commands_of(parts).run("/bin/true", (), 1)


@pytest.mark.parametrize(
    "sent",
    [
        b"no json\n",
        b"[]\n",
        b"{}\n",
        b'{"timeout":1}\n',
        b'{"timeout":"x","ping":true}\n',
        b'{"timeout":null,"ping":true}\n',
        b'{"timeout":NaN,"ping":true}\n',
        b'{"timeout":1%s,"ping":true}\n' % (b"0" * 400),
        b'{"timeout":1,"command":7}\n',
        b'{"timeout":1,"command":"x","args":7}\n',
        b"x" * (65 << 10),
    ],
)
def test_requests_that_make_no_sense(door: Path, sent: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(20)
        caller.connect(str(door))
        try:
            caller.sendall(sent)
            answer = json.loads(caller.makefile().readline())
        except ConnectionError:
            return  # It did not even read to the end.
    assert answer == {"error": "the request is not understood"}


@pytest.mark.parametrize("argv", [[], ["--guestAgentPing", "--command", "x"], ["--command"], ["--nonsense"],
                                  ["--timeoutSeconds", "x", "--guestAgentPing"]])  # fmt: skip
def test_flags_that_make_no_sense(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                  argv: list[str]) -> None:  # fmt: skip
    monkeypatch.setattr("sys.argv", ["virt-probe", *argv])
    assert ask.main() == ask.NOT_ASKED
    assert "usage: virt-probe" in capsys.readouterr().err


def test_a_launcher_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["virt-probe", "--guestAgentPing"])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ask.main() == ask.NOT_ASKED
    assert "the launcher does not answer" in capsys.readouterr().err


def status(**fields: object) -> str:
    return json.dumps({"return": fields})


def test_answers_of_the_agent_are_cut_to_size() -> None:
    assert number_from_answer(status(pid=7)) == 7
    assert exit_from_answer(status(exited=False)) is None
    long = base64.b64encode(b"x" * 3 * MAX_OUTPUT).decode()
    ended = exit_from_answer(status(exited=True, exitcode=1, **{"out-data": long, "err-data": "!"}))
    assert ended is not None
    assert (ended.exit_code, set(ended.output)) == (1, {"x"})
    assert len(ended.output) <= MAX_OUTPUT
    assert exit_from_answer(status(exited=True, signal=9)) == GuestExit(137)
    assert exit_from_answer(status(exited=True, exitcode=-(10**30))) == GuestExit(255)


@pytest.mark.parametrize("answer", ["", "[]", '{"return": []}', '{"return": {"pid": true}}', '{"return": {"pid": -1}}',
                                    "[" * 100_000, "x" * (MAX_ANSWER + 1)])  # fmt: skip
def test_a_lying_agent_is_not_believed(answer: str) -> None:
    with pytest.raises(LauncherError, match="the guest agent"):
        number_from_answer(answer)


@pytest.mark.parametrize(("probe", "asks"), [({"guestAgentPing": {}}, True), ({"exec": {"command": ["x"]}}, True),
                                             ({"tcpSocket": {"port": 22}}, False), (None, False)])  # fmt: skip
def test_who_asks_the_guest_itself(probe: dict[str, object] | None, asks: bool) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"domain": {}, "livenessProbe": probe}}
    assert asks_guest(from_plain(body, VirtualMachineInstance)) is asks
