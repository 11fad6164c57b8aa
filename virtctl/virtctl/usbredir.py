"""`virtctl usbredir`: a USB device of this machine in the guest, by way of the local usbredirect program."""

from __future__ import annotations

import shutil
import socket

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.targets import subresource_path

_CLIENT = "usbredirect"
_CONNECT_S = 60.0


@declare("usbredir")
@click.argument("words", nargs=-1, required=True, metavar="(VENDOR:PRODUCT|BUS-DEVICE) VMI")
@click.option("--no-launch", is_flag=True, help="Start no usbredirect; print the address for it.")
def command(settings: Settings, words: tuple[str, ...], no_launch: bool) -> None:
    """Give a USB device of this machine to a VMI. With --no-launch only the VMI is named."""
    from virtctl.session import session
    from virtctl.stream.local import serve_one
    from virtctl.stream.websocket import HandshakeRefused, Stream

    if len(words) != (1 if no_launch else 2):
        raise click.UsageError("give the device and the VMI" if not no_launch else "give only the VMI")
    if not no_launch and shutil.which(_CLIENT) is None:
        raise click.ClickException(f"{_CLIENT} is not in $PATH: install it, or use --no-launch")
    name = words[-1]
    with session(settings) as cluster, socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        try:
            stream = Stream(cluster.connection, subresource_path(cluster.namespace, name, "usbredir"))
            if no_launch:
                click.echo(f"User can connect usbredir client at: {address}")
            program = None if no_launch else [_CLIENT, "--device", words[0], "--to", address]
            serve_one(stream, listener, program, _CONNECT_S)
        except (HandshakeRefused, ConnectionError) as error:
            raise click.ClickException(f"cannot give a USB device to {name}: {error}") from error
