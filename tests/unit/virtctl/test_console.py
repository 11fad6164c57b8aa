"""The console: terminal and websocket, each for real, over a local server."""

from __future__ import annotations

import json
import os
import pty
import socket
import ssl
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from aiohttp import web
from framework.certs import CertAuthority
from framework.waiting import eventually
from framework.wsserver import EchoServer, refusal, serving

from virt_core.kube.connect import Connection
from virt_core.kube.errors import Unreachable
from virtctl.console.command import connect
from virtctl.console.terminal import Ended, join
from virtctl.stream.websocket import HandshakeRefused, Stream


@pytest.fixture
def console() -> Iterator[EchoServer]:
    with serving(EchoServer()) as server:
        yield server


class Cluster:
    """The part of a session that `connect` needs."""

    def __init__(self, console: EchoServer) -> None:
        self.connection, self.namespace = console.connection(), "default"


class Terminal:
    """A pseudo-terminal with `join` running on its slave side."""

    def __init__(self, stream: Stream) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.outcome: list[Ended] = []
        self.seen = b""
        self.thread = threading.Thread(target=lambda: self.outcome.append(join(stream, self.slave, self.slave)))
        self.thread.start()
        eventually(lambda: termios.tcgetattr(self.slave) != self.before)
        os.set_blocking(self.master, False)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def expect(self, text: bytes) -> None:
        def look() -> bool:
            try:
                self.seen += os.read(self.master, 65536)
            except BlockingIOError:
                pass
            return text in self.seen

        eventually(look)

    def end(self) -> Ended:
        self.thread.join(5)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal was not put back"
        os.close(self.slave)
        os.close(self.master)
        return self.outcome[0]


def test_keys_go_out_and_the_guest_comes_back(console: EchoServer) -> None:
    """Raw bytes both ways, ^C included; ^] leaves and what is typed behind it is dropped."""
    terminal = Terminal(Stream(console.connection(), "/console"))
    terminal.type(b"hello\x03")
    terminal.expect(b"HELLO\x03")
    terminal.type(b"last\x1dnever")
    assert terminal.end() is Ended.LEFT
    eventually(lambda: b"last" in console.received)
    assert b"text frame" not in terminal.seen
    assert console.headers[0]["Authorization"] == "Bearer secret"
    assert console.headers[0]["Sec-WebSocket-Protocol"] == "plain.kubevirt.io"


def test_a_large_output_arrives_whole(console: EchoServer) -> None:
    terminal = Terminal(Stream(console.connection(), "/console"))
    terminal.type(b"big")
    eventually(lambda: terminal.expect(b"x") or terminal.seen.count(b"x") == 200_000)
    terminal.type(b"\x1d")
    assert terminal.end() is Ended.LEFT


def test_over_tls_with_a_client_certificate(tmp_path: Path) -> None:
    """What TLS has decrypted already is not forgotten, though the descriptor does not show it."""
    ca = CertAuthority()
    leaf, client = ca.issue("server", "localhost").write(tmp_path), ca.issue("me")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(leaf / "tls.crt", leaf / "tls.key")
    tls.load_verify_locations(leaf / "ca.crt")
    tls.verify_mode = ssl.CERT_REQUIRED
    with serving(EchoServer(), tls) as console:
        address = f"https://localhost:{console.port}"
        settings = Connection(address, ca_pem=ca.pem, cert_pem=client.cert, key_pem=client.key)
        terminal = Terminal(Stream(settings, "/console"))
        terminal.type(b"big")
        eventually(lambda: terminal.expect(b"x") or terminal.seen.count(b"x") == 200_000)
        terminal.type(b"more")
        terminal.expect(b"MORE")
        terminal.type(b"\x1d")
        assert terminal.end() is Ended.LEFT
        with pytest.raises(Unreachable, match=r"(?i)certificate"):
            Stream(Connection(address, ca_pem=CertAuthority().pem), "/console")


def test_the_other_side_closes_in_order(console: EchoServer) -> None:
    terminal = Terminal(Stream(console.connection(), "/console"))
    terminal.type(b"bye")
    assert terminal.end() is Ended.CLOSED


def test_the_other_side_closes_with_a_reason(console: EchoServer) -> None:
    console.close_code = 1011
    stream = Stream(console.connection(), "/console")
    terminal = Terminal(stream)
    terminal.type(b"bye")
    assert terminal.end() is Ended.LOST
    assert stream.reason == "the guest is gone"


class PipeStream:
    """A stream whose other end is in the test."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.closed = False

    def fileno(self) -> int:
        return self.ours.fileno()

    def pending(self) -> bool:
        return False

    def send(self, data: bytes) -> None:
        self.ours.sendall(data)

    def receive(self) -> bytes | None:
        return self.ours.recv(100) or None

    def close(self) -> None:
        self.closed = True


def test_piped_input_may_end_and_the_output_goes_on() -> None:
    """`virtctl console x < script > log` reads on after the script's last line."""
    stream = PipeStream()
    stdin_r, stdin_w = os.pipe()
    stdout_r, stdout_w = os.pipe()
    outcome: list[Ended] = []
    thread = threading.Thread(target=lambda: outcome.append(join(stream, stdin_r, stdout_w)))
    thread.start()
    os.write(stdin_w, b"command\n")
    assert stream.theirs.recv(100) == b"command\n"
    os.close(stdin_w)
    stream.theirs.sendall(b"answer")
    assert os.read(stdout_r, 100) == b"answer"
    stream.theirs.close()
    thread.join(5)
    assert outcome == [Ended.CLOSED]
    assert stream.closed
    for fd in (stdin_r, stdout_r, stdout_w):
        os.close(fd)
    stream.ours.close()


def test_waits_while_the_guest_is_not_running_yet(
    console: EchoServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    naps: list[float] = []
    monkeypatch.setattr("virtctl.console.command.time.sleep", naps.append)
    console.answers = [refusal(400, "VMI is not running"), refusal(503, "virt-api restarts")]
    stream = connect(Cluster(console), "guest", 60)  # type: ignore[arg-type]
    stream.close()
    assert naps == [1.0, 1.0]
    assert "waiting for the console of guest: VMI is not running\n" in capsys.readouterr().err


def test_gives_up_after_the_timeout_and_at_once_for_good_reasons(console: EchoServer) -> None:
    console.answers = [refusal(400, "VMI is not running")]
    with pytest.raises(click.ClickException, match="no console of guest within 0 minutes: VMI is not running"):
        connect(Cluster(console), "guest", 0)  # type: ignore[arg-type]
    console.answers = [refusal(404, "no such VMI")]
    with pytest.raises(click.ClickException, match="no such VMI"):
        connect(Cluster(console), "guest", 60)  # type: ignore[arg-type]


def test_a_plain_text_refusal_is_shown_too(console: EchoServer) -> None:
    console.answers = [web.Response(status=403, text="forbidden by proxy\n")]
    with pytest.raises(HandshakeRefused, match="forbidden by proxy"):
        Stream(console.connection(), "/console")


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Unreachable, match="refused"):
        Stream(Connection(f"http://127.0.0.1:{port}"), "/console")


def test_the_console_follows_a_guest_that_moves(console: EchoServer, tmp_path: Path) -> None:
    """The node that it has left refuses for a moment longer."""
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "here"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{console.port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(json.dumps(document))
    program = [sys.executable, "-c", "from virtctl.main import main; main()"]
    argv = [*program, "--kubeconfig", str(tmp_path / "config"), "console", "vm"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as virtctl:
        assert virtctl.stdin is not None
        eventually(lambda: len(console.paths) == 1, within_s=20)
        console.close_code = 1012
        console.answers.append(refusal(409, "VMI here/vm is not running"))
        virtctl.stdin.write(b"bye")
        virtctl.stdin.flush()
        eventually(lambda: len(console.paths) == 3, within_s=20)
        console.close_code = 1000
        virtctl.stdin.write(b"bye")
        virtctl.stdin.flush()
        _, words = virtctl.communicate(timeout=20)
    assert b"vm has moved to another node; connecting again." in words
    assert virtctl.returncode == 0
