"""`virtctl version`: ours, and that of virt-api behind the API server."""

from __future__ import annotations

import click

from virt_core import __version__
from virtctl.options import Settings, connection_options


@click.command("version")
@click.option("-c", "--client", is_flag=True, help="Only the version of virtctl; asks no server.")
@connection_options
@click.pass_obj
def command(settings: Settings, client: bool) -> None:
    """Prints the versions of virtctl and of the server."""
    click.echo(f"Client Version: {__version__}")
    if client:
        return
    server = _server_version(settings)
    click.echo(f"Server Version: {server}")
    if not compatible(__version__, server):
        click.echo(f"Warning: virtctl {__version__} and the server's {server} differ; use matching versions.", err=True)


def _server_version(settings: Settings) -> str:
    import msgspec

    from virtctl.session import session

    with session(settings) as cluster:
        body = cluster.client.raw("GET", "/apis/subresources.kubevirt.io/v1/version")
    try:
        return str(msgspec.json.decode(body, type=dict[str, str])["gitVersion"])
    except (msgspec.MsgspecError, KeyError) as error:
        raise click.ClickException(f"virt-api's answer is no version: {error}") from error


def compatible(ours: str, theirs: str) -> bool:
    """Same major and minor; a `v` in front and anything behind do not matter."""
    return ours.lstrip("v").split(".")[:2] == theirs.lstrip("v").split(".")[:2]
