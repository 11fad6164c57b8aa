"""`virtctl create`, called as a user does, and what it made."""

from __future__ import annotations

from typing import Any

import yaml
from click.testing import CliRunner, Result

from virt_core.apis.base import decode, encode
from virt_core.apis.vm import VirtualMachine
from virtctl.main import cli


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["create", *args])


def made(*args: str) -> Any:
    result = run(*args)
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.stdout)


def vm(*args: str) -> Any:
    """The VM's spec; also proves that the manifest fits the kind."""
    manifest = made("vm", *args)
    decode(encode(manifest), VirtualMachine)
    assert (manifest["apiVersion"], manifest["kind"]) == ("kubevirt.io/v1", "VirtualMachine")
    return manifest["spec"]


def template(*args: str) -> Any:
    return vm(*args)["template"]["spec"]


def refusal(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 1, result.output
    return result.stderr
