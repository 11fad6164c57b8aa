"""ssh and scp: how the local programs are called. They are played by a script that prints its arguments."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from virtctl.main import cli
from virtctl.options import Settings
from virtctl.ssh.client import proxy_command
from virtctl.targets import Target


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "here"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(json.dumps(document))
    (tmp_path / "bin").mkdir()
    for program in ("ssh", "scp"):
        script = tmp_path / "bin" / program
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/{program}.args\nexit ${{CODE:-0}}\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("USER", "me")
    monkeypatch.setenv("HOME", "/home/me")
    return str(tmp_path / "config")


def call(config: str, *args: str) -> list[str]:
    result = CliRunner().invoke(cli, ["--kubeconfig", config, *args])
    assert result.exit_code == 0, result.output
    return Path(config).with_name(f"{args[0]}.args").read_text().splitlines()


def test_ssh(config: str) -> None:
    words = call(config, "ssh", "vmi/one")
    assert words[0] == "-o"
    assert words[1].startswith("ProxyCommand=")
    assert words[1].endswith(f" port-forward --kubeconfig={config} --stdio=true vmi/one/here 22")
    assert words[2:] == ["-o", "UserKnownHostsFile=/home/me/.ssh/kubevirt_known_hosts", "me@vmi.one.here"]


def test_ssh_with_all_flags(config: str) -> None:
    flags = ["-p", "2222", "-i", "/key", "--known-hosts=/known", "-t", "-o A=b", "-t", "-q", "-c", "ls /", "-l", "x"]
    words = call(config, "ssh", "jane@vm/one/there", *flags)
    assert words[1].endswith("--stdio=true vm/one/there 2222")
    assert words[2:] == [
        "-o A=b", "-q", "-i", "/key", "-o", "UserKnownHostsFile=/known", "jane@vm.one.there", "ls /",
    ]  # fmt: skip


def test_the_username_flag_counts_where_the_target_names_none(config: str) -> None:
    assert call(config, "ssh", "vmi/one", "-l", "root", "-n", "there")[-1] == "root@vmi.one.there"


@pytest.mark.parametrize(
    ("args", "last"),
    [
        (["file", "root@vmi/one:/tmp"], ["file", "root@vmi.one.here:/tmp"]),
        (["vm/one/there:a:b", "."], ["me@vm.one.there:a:b", "."]),
        (["-r", "--preserve", "dir", "vmi/one:"], ["-r", "-p", "dir", "me@vmi.one.here:"]),
    ],
)
def test_scp(config: str, args: list[str], last: list[str]) -> None:
    words = call(config, "scp", *args)
    assert words[1].startswith("ProxyCommand=")
    assert words[-len(last) :] == last


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["ssh", "one"], "is not a target"),
        (["ssh", "@vmi/one"], "the user before the @ is missing"),
        (["scp", "a", "b"], "exactly one of source and target must be in a guest"),
        (["scp", "vmi/a:x", "vmi/b:y"], "exactly one of source and target must be in a guest"),
        (["ssh"], "Missing argument"),
    ],
)
def test_refusals(config: str, args: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["--kubeconfig", config, *args])
    assert result.exit_code == 1
    assert message in result.output


def test_a_failure_of_ssh_is_one_of_ours(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODE", "255")
    result = CliRunner().invoke(cli, ["--kubeconfig", config, "ssh", "vmi/one"])
    assert (result.exit_code, result.output) == (1, "Error: ssh ended with exit code 255\n")
    os.remove(Path(config).with_name("bin") / "ssh")
    monkeypatch.setenv("PATH", str(Path(config).with_name("bin")))
    assert "ssh is not in $PATH" in CliRunner().invoke(cli, ["--kubeconfig", config, "ssh", "vmi/one"]).output


def test_the_proxy_command_survives_the_shell_and_ssh() -> None:
    """ssh reads % and the shell reads blanks: neither may touch the path of the kubeconfig."""
    command = proxy_command(Settings(kubeconfig="/my configs/100%/k"), Target("vmi", "one", "here"), 22)
    assert "100%%/k" in command
    assert shlex.split(command.replace("%%", "%"))[-4:] == [
        "--kubeconfig=/my configs/100%/k", "--stdio=true", "vmi/one/here", "22",
    ]  # fmt: skip
