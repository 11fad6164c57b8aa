"""`virtctl version`: ours, and that of virt-api behind the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from virt_core import __version__
from virtctl.cli import command as declare
from virtctl.options import Settings

if TYPE_CHECKING:
    from virt_core.kube.client import KubeClient


@declare("version")
@click.option("-c", "--client", is_flag=True, help="Only the version of virtctl; asks no server.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Output format.")
def command(settings: Settings, client: bool, output: str) -> None:
    """Print the versions of virtctl and of the server."""
    ours: dict[str, Any] = {"gitVersion": f"v{__version__}"}
    found = {"clientVersion": ours}
    if not client:
        from virtctl.session import session

        with session(settings) as cluster:
            found["serverVersion"] = server_version(cluster.client)
    if output == "text":
        for side, value in found.items():
            click.echo(f"{side[:6].capitalize()} Version: {value['gitVersion']}")
    else:
        from virtctl.output import document

        click.echo(document(found, output), nl=False)
    if warning := mismatch(found.get("serverVersion", ours)):
        click.echo(warning, err=True)


def server_version(client: KubeClient, timeout_s: float | None = None) -> dict[str, Any]:
    import msgspec

    body = client.raw("GET", "/apis/subresources.kubevirt.io/v1/version", timeout_s=timeout_s)
    try:
        version = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise click.ClickException(f"virt-api's answer is not a version: {error}") from error
    if not isinstance(version.get("gitVersion"), str):
        raise click.ClickException("virt-api's answer is not a version: it has no gitVersion")
    return version


def mismatch(server: dict[str, Any]) -> str:
    theirs = str(server["gitVersion"])
    if compatible(__version__, theirs):
        return ""
    return f"Warning: virtctl {__version__} and the server's {theirs} differ; use matching versions."


def compatible(ours: str, theirs: str) -> bool:
    """Same major and minor; a `v` in front and anything behind do not matter."""
    return ours.lstrip("v").split(".")[:2] == theirs.lstrip("v").split(".")[:2]
