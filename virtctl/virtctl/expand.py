"""`virtctl expand`: a VM with everything that its instance type and preference say."""

from __future__ import annotations

from typing import Any

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.targets import VM, part, subresource_path


@declare("expand")
@click.option("--vm", "name", metavar="NAME", help="Name of a VM in the cluster.")
@click.option("-f", "--file", "path", metavar="FILE", help="Manifest file; - reads standard input.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Output format."
)
def command(settings: Settings, name: str | None, path: str | None, output: str) -> None:
    """Show a VM with its instance type and preference applied. Changes nothing."""
    import msgspec

    from virtctl.output import document
    from virtctl.session import session

    if bool(name) == bool(path):
        raise click.UsageError("give either --vm NAME or --file FILE")
    manifest = read_manifest(path) if path else None
    with session(settings) as cluster:
        if manifest is None:
            body = cluster.client.raw("GET", subresource_path(cluster.namespace, name or "", "expand-spec", VM))
        else:
            base = f"/apis/subresources.kubevirt.io/v1/namespaces/{part(cluster.namespace)}/expand-vm-spec"
            body = cluster.client.raw("PUT", base, body=msgspec.json.encode(manifest))
    click.echo(document(msgspec.json.decode(body), output), nl=False)


def read_manifest(path: str) -> dict[str, Any]:
    import yaml

    try:
        with click.open_file(path) as file:
            manifest = yaml.safe_load(file)
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise click.ClickException(f"{path} is neither YAML nor JSON: {' '.join(str(error).split())}") from error
    if not isinstance(manifest, dict):
        raise click.ClickException(f"{path} holds no VirtualMachine")
    return manifest
