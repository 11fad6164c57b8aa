"""Calls that change a running machine: each is one PUT on a subresource of its VMI."""

from __future__ import annotations

import click

from virtctl.options import Settings, connection_options
from virtctl.targets import VM, Target, parse_target, subresource_path

_TARGET = click.argument("target", nargs=-1, required=True, metavar="(vm|vmi) NAME")
_DRY = click.option("--dry-run", is_flag=True, help="Only check whether it could be done.")
_DRY_RUN = b'{"dryRun":["All"]}'


@click.command("pause")
@_TARGET
@_DRY
@connection_options
@click.pass_obj
def pause(settings: Settings, target: tuple[str, ...], dry_run: bool) -> None:
    """Stops the virtual CPUs; the guest's memory stays, and its clock stands still until `unpause`."""
    call(settings, parse_target(target), "pause", dry_run=dry_run)


@click.command("unpause")
@_TARGET
@_DRY
@connection_options
@click.pass_obj
def unpause(settings: Settings, target: tuple[str, ...], dry_run: bool) -> None:
    """Lets a paused VM or VMI go on where it was stopped."""
    call(settings, parse_target(target), "unpause", dry_run=dry_run)


def call(settings: Settings, target: Target, subresource: str, *, dry_run: bool) -> None:
    from virt_core.apis.vm import VirtualMachine
    from virt_core.kube.errors import NotFound
    from virtctl.session import session

    with session(settings) as cluster:
        if target.kind == VM:
            # Its VMI has its name; asking for the VM first makes "there is no such VM" a clear answer.
            cluster.client.get(VirtualMachine, target.name, cluster.namespace)
        path = subresource_path(cluster.namespace, target.name, subresource)
        try:
            cluster.client.raw("PUT", path, body=_DRY_RUN if dry_run else b"{}")
        except NotFound as error:
            raise click.ClickException(_not_found(error, cluster.namespace, target)) from error
    suffix = " (dry run: nothing was changed)" if dry_run else ""
    click.echo(f"{target.kind.upper()} {target.name} was scheduled to {subresource}{suffix}")


def _not_found(error: Exception, namespace: str, target: Target) -> str:
    if target.name in str(error):
        return str(error)
    return f"{target.kind} {namespace}/{target.name} does not exist, or virt-api is not installed: {error}"
