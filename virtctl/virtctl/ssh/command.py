"""`virtctl ssh [user@]type/name[/namespace]`."""

from __future__ import annotations

from typing import Any

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.ssh.client import client_options, parse_host, run


@declare("ssh")
@click.argument("target", metavar="[USER@](VM|VMI)/NAME[/NAMESPACE]")
@client_options
@click.option("-c", "--command", "remote_command", metavar="COMMAND", help="Run this instead of a shell.")
def command(settings: Settings, target: str, remote_command: str | None, **options: Any) -> None:
    """Open an SSH connection to a VM or VMI, with the local ssh client."""
    host = parse_host(settings, target, options["username"])
    run("ssh", settings, host, options, [str(host), *([remote_command] if remote_command else [])])
