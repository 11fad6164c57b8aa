"""What all commands share: flags as Go takes them, global flags, completion, speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from framework.fake_kube import FakeKube, failure

from virt_core import __version__
from virtctl.cli import first_argument, plain_flags
from virtctl.create.vm import command as create_vm
from virtctl.main import COMMANDS, cli
from virtctl.options import Settings
from virtctl.portforward.command import command as port_forward
from virtctl.session import Session

from .conftest import Run

SUB = "/apis/subresources.kubevirt.io/v1/namespaces/default"


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (["--stdio=true", "vmi/x", "22"], ["--stdio", "vmi/x", "22"]),
        (["--stdio=false", "vmi/x", "22"], ["vmi/x", "22"]),
        (["--stdio=1"], ["--stdio"]),
        (["--address=true"], ["--address=true"]),
        (["-n=here", "vmi/x=y"], ["-n", "here", "vmi/x=y"]),
        (["--", "--stdio=true"], ["--", "--stdio=true"]),
    ],
)
def test_boolean_flags_take_a_value_as_in_go(given: list[str], plain: list[str]) -> None:
    assert plain_flags(port_forward, given) == plain


def test_a_flag_that_is_on_by_default_can_be_turned_off() -> None:
    assert plain_flags(create_vm, ["--infer-preference=false"]) == ["--no-infer-preference"]
    with pytest.raises(click.BadParameter, match="neither true nor false"):
        plain_flags(port_forward, ["--stdio=maybe"])


def test_first_argument_is_no_value_of_a_flag() -> None:
    assert first_argument(port_forward, ["-n", "screenshot", "--stdio", "vmi/x", "22"]) == "vmi/x"
    assert first_argument(port_forward, ["--address=::1"]) == ""


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"Usage: virtctl {name}" in result.output


def test_the_connection_flags_stand_at_the_end_of_the_help() -> None:
    output = CliRunner().invoke(cli, ["start", "-h"]).output
    assert output.index("--paused") < output.index("--dry-run") < output.index("--kubeconfig") < output.index("--help")
    assert "--insecure-skip-tls-verify" not in output


def test_options_lists_all_global_flags() -> None:
    output = CliRunner().invoke(cli, ["options"]).output
    assert "--as-group" in output
    assert "--kubeconfig FILE" in output


def test_global_flags_reach_the_server(kube: FakeKube, run: Run) -> None:
    kube.on_request = lambda *_: (200, b"", {})
    assert run("start", "vm1", "-v", "0", "--token=other", "--as", "jane", "--request-timeout=5s").exit_code == 0
    refused = run("start", "vm1", "--request-timeout", "soon")
    assert (refused.exit_code, "not a duration: write e.g. 10s" in refused.output) == (1, True)
    missing = run("start", "vm1", "--certificate-authority", "/none")
    assert "cannot read /none: No such file" in missing.output


def test_a_token_or_certificate_comes_instead_of_the_contexts_user(tmp_path: Path) -> None:
    """A certificate beside a token would win on the server's side, and the caller would be somebody else."""
    user = {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5", "token": "mine"}
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    known = Settings(kubeconfig=str(tmp_path / "config"))
    assert Session(known).connection.cert_pem == b"cert"
    by_token = Session(replace(known, token="theirs")).connection
    assert (by_token.cert_pem, by_token.headers()["Authorization"]) == (b"", "Bearer theirs")
    (tmp_path / "pem").write_text("other")
    by_certificate = Session(replace(known, client_certificate=str(tmp_path / "pem"))).connection
    assert (by_certificate.cert_pem, by_certificate.headers()) == (b"other", {})


def test_settings_of_another_virtctl() -> None:
    settings = Settings(kubeconfig="/k", as_user="jane", insecure_skip_tls_verify=True, verbose=3, namespace="n")
    assert settings.arguments() == ["--kubeconfig=/k", "--as=jane", "--insecure-skip-tls-verify"]


def test_an_error_of_another_servers_version_comes_with_a_warning(kube: FakeKube, run: Run) -> None:
    def answer(method: str, path: str, *_: object) -> object:
        return (200, {"gitVersion": "v9.1.0"}, {}) if path.endswith("/version") else failure(409, "", "no")

    kube.on_request = answer  # type: ignore[assignment]
    result = run("start", "vm1")
    assert result.exit_code == 1
    assert result.stderr == (
        f"Warning: virtctl {__version__} and the server's v9.1.0 differ; use matching versions.\nError: no\n"
    )


def test_no_warning_for_the_same_version_or_none(kube: FakeKube, run: Run) -> None:
    kube.on_request = lambda _m, path, *_: (
        (200, {"gitVersion": f"v{__version__}"}, {}) if path.endswith("/version") else failure(409, "", "no")
    )
    assert run("start", "vm1").output == "Error: no\n"
    kube.on_request = lambda *_: failure(500, "", "broken")
    assert run("start", "vm1").output == "Error: broken\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert "_VIRTCTL_COMPLETE" in result.output
    assert f"{shell}_complete" in result.output


def test_completion_knows_commands_without_importing_them() -> None:
    env = {**os.environ, "_VIRTCTL_COMPLETE": "bash_complete", "COMP_WORDS": "virtctl st", "COMP_CWORD": "1"}
    code = "from virtctl.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == ["plain,start", "plain,stop"]
