"""vnc, its screenshot, and usbredir: a local port with one connection, and the program that makes it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from framework.wsserver import EchoServer, refusal, serving

from virtctl.main import cli
from virtctl.vnc.viewer import find_viewer

BASE = "/apis/subresources.kubevirt.io/v1/namespaces/here/virtualmachineinstances/one"
PNG = b"\x89PNG\r\n\x1a\nrest"
#: Stands in for a viewer or usbredirect: says hello to the last host:port in its arguments, prints the answer.
CLIENT = """#!{python}
import re, socket, sys
host, port = re.findall(r"([0-9.]+)::?([0-9]+)", sys.argv[-1])[-1]
with socket.create_connection((host, int(port)), 10) as s:
    s.sendall(b"hello")
    open("{out}", "wb").write(s.recv(5))
"""


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with serving(EchoServer()) as started:
        yield started


@pytest.fixture
def config(server: EchoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "here"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(json.dumps(document))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return str(tmp_path / "config")


def program(config: str, name: str) -> Path:
    path = Path(config).with_name("bin") / name
    path.write_text(CLIENT.format(python=sys.executable, out=Path(config).with_name("answer")))
    path.chmod(0o755)
    return path


def run(config: str, *args: str) -> Result:
    return CliRunner().invoke(cli, ["--kubeconfig", config, *args])


@pytest.mark.parametrize("viewer", ["remote-viewer", "vncviewer"])
def test_a_viewer_is_found_started_and_joined(server: EchoServer, config: str, viewer: str) -> None:
    program(config, viewer)
    result = run(config, "vnc", "one", "--preserve-session")
    assert result.exit_code == 0, result.output
    assert Path(config).with_name("answer").read_bytes() == b"HELLO"
    assert server.paths == [f"{BASE}/vnc?preserveSession=true"]


def test_a_viewer_by_its_path(config: str) -> None:
    path = program(config, "my-viewer")
    assert run(config, "vnc", "one", "--vnc-type=tiger", f"--vnc-path={path}").exit_code == 0
    assert Path(config).with_name("answer").read_bytes() == b"HELLO"


def test_proxy_only_prints_the_port(server: EchoServer, config: str) -> None:
    code = "from virtctl.main import main; main()"
    args = [sys.executable, "-c", code, "--kubeconfig", config, "vnc", "one", "--proxy-only"]
    with subprocess.Popen(args, stdout=-1) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(b'{"port":')
        with socket.create_connection(("127.0.0.1", json.loads(line)["port"]), 10) as viewer:
            viewer.sendall(b"rfb")
            assert viewer.recv(3) == b"RFB"
        assert process.wait(10) == 0
    assert server.paths == [f"{BASE}/vnc"]


def test_refusals_of_vnc(server: EchoServer, config: str) -> None:
    assert "remote-viewer or vncviewer is not in $PATH" in run(config, "vnc", "one").output
    assert "there is no program at /none" in run(config, "vnc", "one", "--vnc-path=/none").output
    assert server.paths == [], "no session of somebody else was ended for nothing"
    server.answers = [refusal(400, "VMI is not running")]
    result = run(config, "vnc", "one", "--proxy-only")
    assert (result.exit_code, result.output) == (1, "Error: cannot open the screen of one: VMI is not running\n")


def test_a_viewer_that_fails_is_told(config: str) -> None:
    path = Path(config).with_name("bin") / "remote-viewer"
    path.write_text("#!/bin/sh\nexit 3\n")
    path.chmod(0o755)
    result = run(config, "vnc", "one")
    assert result.exit_code == 1
    assert "ended with exit code 3" in result.output


def test_viewers_for_other_systems() -> None:
    with pytest.raises(click.ClickException, match=r"Chicken\.app"):
        find_viewer("chicken", None)
    assert find_viewer("remote-viewer", "/bin/sh")(5900) == ["/bin/sh", "vnc://127.0.0.1:5900"]
    assert find_viewer("real", "/bin/sh")(5900)[1:3] == ["127.0.0.1:5900", "-WarnUnencrypted=0"]


@pytest.mark.parametrize("args", [["screenshot", "one"], ["-n", "here", "screenshot", "one"]])
def test_screenshot(server: EchoServer, config: str, tmp_path: Path, args: list[str]) -> None:
    server.answers = [web.Response(body=PNG, content_type="image/png")]
    result = run(config, "vnc", *args, "-f", f"{tmp_path}/picture.png", "-m")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "picture.png").read_bytes() == PNG
    assert server.paths == [f"{BASE}/vnc/screenshot?moveCursor=true"]


def test_screenshot_to_standard_output(server: EchoServer, config: str) -> None:
    server.answers = [web.Response(body=PNG, content_type="image/png")]
    assert run(config, "vnc", "screenshot", "one", "--file=-").stdout_bytes == PNG


def test_screenshot_refusals(server: EchoServer, config: str) -> None:
    server.answers = [web.Response(status=500, text="VMI is not running\n"), web.Response(status=404)]
    assert run(config, "vnc", "screenshot", "one", "-f", "-").output == "Error: VMI is not running\n"
    server.answers = [web.Response(text="<html>")]
    assert "is not a picture" in run(config, "vnc", "screenshot", "one", "-f", "-").output
    server.answers = [web.Response(body=PNG)]
    assert "cannot write /none/x: No such file" in run(config, "vnc", "screenshot", "one", "-f", "/none/x").output
    assert "Missing option '-f'" in run(config, "vnc", "screenshot", "one").output


def test_usbredir(server: EchoServer, config: str) -> None:
    assert "usbredirect is not in $PATH" in run(config, "usbredir", "1234:abcd", "one").output
    program(config, "usbredirect")
    result = run(config, "usbredir", "1234:abcd", "one")
    assert result.exit_code == 0, result.output
    assert Path(config).with_name("answer").read_bytes() == b"HELLO"
    assert server.paths == [f"{BASE}/usbredir"]


def test_usbredir_refusals(server: EchoServer, config: str) -> None:
    assert "give only the VMI" in run(config, "usbredir", "1234:abcd", "one", "--no-launch").output
    assert "give the device and the VMI" in run(config, "usbredir", "one").output
    server.answers = [refusal(409, "Not configured with USB Redirection")]
    result = run(config, "usbredir", "one", "--no-launch")
    assert result.output == "Error: cannot give a USB device to one: Not configured with USB Redirection\n"


def test_a_guest_that_moves_ends_the_session_with_a_word(server: EchoServer, config: str) -> None:
    """A viewer cannot go on with another display."""
    server.close_code = 1012
    path = program(config, "remote-viewer")
    path.write_text(path.read_text().replace('b"hello"', 'b"bye"'))
    result = run(config, "vnc", "vm")
    assert result.exit_code == 1
    assert "the screen of vm closed: the guest is gone; open it again" in result.output
