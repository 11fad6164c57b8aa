"""port-forward: ports as they are written, TCP, UDP and standard input and output."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from framework.waiting import eventually
from framework.wsserver import EchoServer, refusal, serving

from virtctl.main import cli
from virtctl.portforward.ports import Forward, parse_port
from virtctl.portforward.tcp import TcpForward
from virtctl.portforward.udp import UdpForward
from virtctl.stream.websocket import Stream
from virtctl.targets import Target, parse_path

BASE = "/apis/subresources.kubevirt.io/v1/namespaces"


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with serving(EchoServer()) as started:
        yield started


@pytest.fixture
def config(server: EchoServer, tmp_path: Path) -> str:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "here"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(json.dumps(document))
    return str(tmp_path / "config")


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("22", Forward("tcp", 22, 22)),
        ("8080:80", Forward("tcp", 8080, 80)),
        ("udp/53", Forward("udp", 53, 53)),
        ("TCP/0:22", Forward("tcp", 0, 22)),
    ],
)
def test_ports(text: str, port: Forward) -> None:
    assert parse_port(text) == port


@pytest.mark.parametrize("text", ["", "x", "0", "70000", "1:", ":1", "icmp/1", "1:2:3", "-1"])
def test_no_ports(text: str) -> None:
    with pytest.raises(click.UsageError):
        parse_port(text)


def test_targets() -> None:
    assert parse_path("vm/one") == Target("vm", "one")
    assert parse_path("virtualmachineinstances/one/there") == Target("vmi", "one", "there")
    for text in ("one", "vm/", "vm/a/", "vm/a/b/c", "pod/a", ""):
        with pytest.raises(click.UsageError):
            parse_path(text)


def stream(server: EchoServer) -> Stream:
    return Stream(server.connection(), "/portforward")


def test_tcp_with_several_connections_at_once(server: EchoServer) -> None:
    forward = TcpForward("127.0.0.1", Forward("tcp", 0, 80), lambda: stream(server))
    thread = threading.Thread(target=forward.run)
    thread.start()
    clients = [socket.create_connection(("127.0.0.1", forward.local_port), 10) for _ in range(3)]
    for number, client in enumerate(clients):
        client.sendall(b"client %d" % number)
    for number, client in enumerate(clients):
        assert client.recv(100) == b"CLIENT %d" % number
        client.close()
    assert len(server.paths) == 3
    forward.close()
    thread.join(10)
    assert not thread.is_alive()


def test_a_refused_connection_is_closed_and_told(server: EchoServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers = [refusal(500, "connection refused by the guest")]
    forward = TcpForward("127.0.0.1", Forward("tcp", 0, 80), lambda: stream(server))
    threading.Thread(target=forward.run, daemon=True).start()
    with socket.create_connection(("127.0.0.1", forward.local_port), 10) as client:
        assert client.recv(1) == b""
    eventually(lambda: "port 80 ended: connection refused by the guest" in capsys.readouterr().err)
    forward.close()


def test_udp_keeps_datagrams_and_senders_apart(server: EchoServer) -> None:
    forward = UdpForward("127.0.0.1", Forward("udp", 0, 53), lambda: stream(server))
    threading.Thread(target=forward.run, daemon=True).start()
    senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for number, sender in enumerate(senders):
        sender.settimeout(10)
        for word in (b"a", b"bc"):
            sender.sendto(word + b"%d" % number, ("127.0.0.1", forward.local_port))
    for number, sender in enumerate(senders):
        assert [sender.recv(100), sender.recv(100)] == [b"A%d" % number, b"BC%d" % number]
        sender.close()
    assert len(server.paths) == 2
    forward.close()


def start(config: str, *args: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from virtctl.main import main; main()", "--kubeconfig", config, "port-forward"]
    return subprocess.Popen([*command, *args], stdin=-1, stdout=-1, stderr=-1)


def test_stdio_is_a_clean_pipe(server: EchoServer, config: str) -> None:
    done = start(config, "--stdio=true", "vmi/one/there", "22")
    out, err = done.communicate(b"ssh-2.0", timeout=20)
    assert (out, err, done.returncode) == (b"SSH-2.0", b"", 0)
    assert server.paths == [f"{BASE}/there/virtualmachineinstances/one/portforward/22/tcp"]


def test_stdio_refusals(server: EchoServer, config: str) -> None:
    server.answers = [refusal(409, "VMI is paused")]
    done = start(config, "--stdio", "vm/one", "22")
    out, err = done.communicate(timeout=20)
    assert (out, done.returncode) == (b"", 1)
    assert err == b"Error: cannot reach port 22 of one: VMI is paused\n"
    assert server.paths[0] == f"{BASE}/here/virtualmachines/one/portforward/22/tcp"


def test_listens_on_all_ports_until_interrupted(server: EchoServer, config: str) -> None:
    process = start(config, "vmi/one", "0:80", "udp/0:53")
    assert process.stdout is not None
    lines = [process.stdout.readline().decode() for _ in range(2)]
    assert lines[0].startswith("Forwarding tcp 127.0.0.1:")
    assert lines[1].endswith("to one:53\n")
    port = int(lines[0].split(":")[1].split()[0])
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"X"
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    process.communicate(timeout=10)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["vmi/one"], "Missing argument"),
        (["one", "22"], "is not a target"),
        (["vmi/one", "22", "80", "--stdio"], "--stdio needs exactly one TCP port"),
        (["vmi/one", "udp/22", "--stdio"], "--stdio needs exactly one TCP port"),
        (["vmi/one", "1", "--address=192.0.2.1"], "cannot listen on tcp 192.0.2.1:1"),
    ],
)
def test_refusals(config: str, args: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["--kubeconfig", config, "port-forward", *args])
    assert result.exit_code == 1
    assert message in result.output


def test_nothing_of_ours_is_left() -> None:
    """Listeners are closed: their ports can be taken again."""
    forward = TcpForward("127.0.0.1", Forward("tcp", 0, 1), lambda: pytest.fail("dialled"))
    port = forward.local_port
    forward.close()
    again = TcpForward("127.0.0.1", Forward("tcp", port, 1), lambda: pytest.fail("dialled"))
    again.close()
