"""How the local ssh and scp are called."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from virtctl.options import Settings
from virtctl.targets import Target, parse_path

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("-l", "--username", metavar="NAME", help="User in the guest. Default: your own name."),
    click.option("-i", "--identity-file", metavar="FILE", help="Private key file. Default: chosen by ssh."),
    click.option("--known-hosts", metavar="FILE", help="Known host keys. Default: ~/.ssh/kubevirt_known_hosts."),
    click.option("-p", "--port", type=click.IntRange(1, 65535), default=22, show_default=True, help="Guest port."),
    click.option(
        "-t", "--local-ssh-opts", multiple=True, metavar="OPTION",
        help="Option for the local client, e.g. '-o StrictHostKeyChecking=no'. May be repeated.",
    ),
)  # fmt: skip


def client_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Host:
    """A machine and the user in it."""

    target: Target
    username: str

    def __str__(self) -> str:
        """What ssh calls it, in its messages and in the known hosts: the proxy command makes the real connection."""
        user = f"{self.username}@" if self.username else ""
        return f"{user}{self.target.kind}.{self.target.name}.{self.target.namespace}"


def parse_host(settings: Settings, text: str, username: str | None) -> Host:
    """`[user@]type/name[/namespace]`."""
    user, at, rest = text.rpartition("@")
    if at and not user:
        raise click.UsageError(f"{text!r}: the user before the @ is missing")
    target = parse_path(rest)
    namespace = target.namespace or _namespace(settings)
    return Host(Target(target.kind, target.name, namespace), user or username or _local_user())


def _namespace(settings: Settings) -> str:
    if settings.namespace:
        return settings.namespace
    from virtctl.session import session

    with session(settings) as cluster:
        return cluster.namespace


def _local_user() -> str:
    return next((os.environ[name] for name in ("USER", "USERNAME", "LOGNAME") if os.environ.get(name)), "")


def run(program: str, settings: Settings, host: Host, options: dict[str, Any], arguments: Sequence[str]) -> None:
    """Raises ClickException when the program fails; what it said about it is on the terminal already."""
    if shutil.which(program) is None:
        raise click.ClickException(f"{program} is not in $PATH: install an OpenSSH client")
    words = [program, *command_line(settings, host, options), *arguments]
    if settings.verbose:
        click.echo(shlex.join(words), err=True)
    try:
        code = subprocess.run(words, check=False).returncode
    except KeyboardInterrupt as error:
        raise click.Abort from error
    if code:
        raise click.ClickException(f"{program} ended with exit code {code}")


def command_line(settings: Settings, host: Host, options: dict[str, Any]) -> list[str]:
    """Options of ours come last: for ssh the first value of an option counts."""
    words = ["-o", f"ProxyCommand={proxy_command(settings, host.target, options['port'])}"]
    words += options["local_ssh_opts"]
    if options["identity_file"]:
        words += ["-i", options["identity_file"]]
    known = options["known_hosts"] or os.path.expanduser("~/.ssh/kubevirt_known_hosts")
    return [*words, "-o", f"UserKnownHostsFile={known}"]


def proxy_command(settings: Settings, target: Target, port: int) -> str:
    """ssh hands it to a shell, and reads % itself."""
    path = f"{target.kind}/{target.name}/{target.namespace}"
    words = [*_ourselves(), "port-forward", *settings.arguments(), "--stdio=true", path, str(port)]
    return shlex.join(words).replace("%", "%%")


def _ourselves() -> list[str]:
    program = shutil.which(sys.argv[0])
    if program and os.path.basename(program) in ("virtctl", "kubectl-virt"):
        return [os.path.abspath(program)]
    return [sys.executable, "-c", "from virtctl.main import main; main()"]
