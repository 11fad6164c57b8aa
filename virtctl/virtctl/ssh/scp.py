"""`virtctl scp SOURCE TARGET`; one of them is `[user@]type/name[/namespace]:path`."""

from __future__ import annotations

from typing import Any

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.ssh.client import client_options, parse_host, run


@declare("scp")
@click.argument("source")
@click.argument("destination")
@client_options
@click.option("-r", "--recursive", is_flag=True, help="Copy whole directories.")
@click.option("--preserve", is_flag=True, help="Keep times and modes of the files.")
def command(settings: Settings, source: str, destination: str, recursive: bool, preserve: bool, **options: Any) -> None:
    """Copy files to or from a VM or VMI, with the local scp client.

    One side is local, the other is [USER@](VM|VMI)/NAME[/NAMESPACE]:PATH.
    """
    remote = ":" in destination
    if (":" in source) == remote:
        raise click.UsageError("exactly one of source and target must be in a guest, e.g. vmi/NAME:PATH")
    machine, _, path = (destination if remote else source).partition(":")
    host = parse_host(settings, machine, options["username"])
    there = f"{host}:{path}"
    flags = [flag for flag, wanted in (("-r", recursive), ("-p", preserve)) if wanted]
    run("scp", settings, host, options, [*flags, *((source, there) if remote else (there, destination))])
