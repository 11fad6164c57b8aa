"""`virtctl objectgraph`: what a VM or VMI depends on."""

from __future__ import annotations

from typing import Any

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.targets import VM, VMI, subresource_path


@declare("objectgraph")
@click.argument("name", metavar="VM|VMI")
@click.option("--vmi", is_flag=True, help="NAME is a VMI, not a VM.")
@click.option("--exclude-optional", is_flag=True, help="Leave out what it does not depend on.")
@click.option("--selector", multiple=True, metavar="KEY=VALUE,…", help="Only nodes with these labels.")
@click.option(
    "-o", "--output", type=click.Choice(["json", "yaml"]), default="json", show_default=True, help="Output format."
)
def command(
    settings: Settings, *, name: str, vmi: bool, exclude_optional: bool, selector: tuple[str, ...], output: str
) -> None:
    """Show the objects that a VM or VMI depends on, as a tree."""
    import msgspec

    from virtctl.output import document
    from virtctl.session import session

    options: dict[str, Any] = {"includeOptionalNodes": not exclude_optional}
    if selector:
        options["labelSelector"] = {"matchLabels": _labels(selector)}
    with session(settings) as cluster:
        path = subresource_path(cluster.namespace, name, "objectgraph", VMI if vmi else VM)
        body = cluster.client.raw("GET", path, body=msgspec.json.encode(options))
    click.echo(document(msgspec.json.decode(body), output), nl=False)


def _labels(selector: tuple[str, ...]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in ",".join(selector).split(","):
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--selector {pair!r} is not of the form key=value")
        labels[key] = value
    return labels
