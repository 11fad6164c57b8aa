"""`virtctl vnc screenshot VMI`."""

from __future__ import annotations

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.targets import subresource_path

_PNG = b"\x89PNG\r\n\x1a\n"


@declare("screenshot")
@click.argument("name", metavar="VMI")
@click.option("-f", "--file", "path", required=True, metavar="FILE", help="File to write; - is standard output.")
@click.option("-m", "--move-cursor", is_flag=True, help="Move the cursor first, to wake up the screen.")
def command(settings: Settings, name: str, path: str, move_cursor: bool) -> None:
    """Save a picture (PNG) of the guest's screen."""
    from virtctl.session import session

    with session(settings) as cluster:
        query = {"moveCursor": "true" if move_cursor else "false"}
        picture = cluster.client.raw("GET", subresource_path(cluster.namespace, name, "vnc/screenshot"), query=query)
        if not picture.startswith(_PNG):
            raise click.ClickException(f"virt-api's answer about the screen of {name} is not a picture")
    try:
        with click.open_file(path, "wb") as file:
            file.write(picture)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
