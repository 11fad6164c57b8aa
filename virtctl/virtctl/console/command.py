"""Waits until the guest has a console, then joins it with the terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.targets import VMI, parse_target, subresource_path

if TYPE_CHECKING:
    from virtctl.session import Session
    from virtctl.stream.websocket import Stream

_RETRY_S = 1.0
#: virt-api says 400 while the guest is not running yet, the API server 503 while virt-api is restarted.
_RETRY_ON = (400, 503)
#: And 409 from a node that the guest has just left.
_RETRY_AFTER_A_MOVE = (*_RETRY_ON, 409)


@declare("console")
@click.argument("target", nargs=-1, required=True, metavar="[vmi] NAME")
@click.option("--timeout", "minutes", type=float, default=5.0, show_default=True, help="Minutes to wait for the guest.")
def command(settings: Settings, target: tuple[str, ...], minutes: float) -> None:
    """Connect to the serial console of a VMI. ^] leaves.

    Only one can hold the console: a new connection ends the previous one. A serial line knows no window size. After
    changing the size of your terminal, type `resize`, or `stty rows ROWS columns COLUMNS`, in the guest. When the guest
    moves to another node, the console follows it.
    """
    from virtctl.console.terminal import Ended, join
    from virtctl.session import session

    wanted = parse_target(target, VMI)
    with session(settings) as cluster:
        stream = connect(cluster, wanted.name, minutes * 60)
        click.echo(f"Connected to the console of {wanted.name}. Press ^] to leave.", err=True)
        ended = join(stream)
        while ended is Ended.CLOSED and stream.moved:
            click.echo(f"{wanted.name} has moved to another node; connecting again.", err=True)
            stream = connect(cluster, wanted.name, minutes * 60, _RETRY_AFTER_A_MOVE)
            ended = join(stream)
    if ended is Ended.LOST:
        raise click.ClickException(
            f"the console of {wanted.name} closed: {stream.reason or 'the connection was lost'}; "
            f"somebody else may have opened it, or see `virtctl explain vmi {wanted.name}`"
        )
    if ended is Ended.CLOSED:
        click.echo(f"The console of {wanted.name} closed: the guest has ended, or somebody else took over.", err=True)


def connect(cluster: Session, name: str, timeout_s: float, retry_on: tuple[int, ...] = _RETRY_ON) -> Stream:
    """Tries once a second while the guest is on its way. Raises ClickException with the server's own reason."""
    from virtctl.progress import Progress
    from virtctl.stream.websocket import HandshakeRefused, Stream

    path = subresource_path(cluster.namespace, name, "console")
    deadline = time.monotonic() + timeout_s
    with Progress(sys.stderr) as progress:
        while True:
            try:
                return Stream(cluster.connection, path)
            except HandshakeRefused as refused:
                if refused.status not in retry_on:
                    raise click.ClickException(refused.message) from refused
                if time.monotonic() >= deadline:
                    message = f"no console of {name} within {timeout_s / 60:g} minutes: {refused.message}"
                    raise click.ClickException(message) from refused
                progress.update(f"waiting for the console of {name}: {refused.message}")
            time.sleep(_RETRY_S)
