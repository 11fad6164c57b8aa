"""`virtctl evacuate-cancel`: the machine stays on its node after all."""

from __future__ import annotations

from typing import Any

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.targets import parse_target, subresource_path


@declare("evacuate-cancel")
@click.argument("target", nargs=-1, required=True, metavar="(vm|vmi) NAME")
@click.option("--dry-run", is_flag=True, help="Check whether it could be done; change nothing.")
def command(settings: Settings, target: tuple[str, ...], dry_run: bool) -> None:
    """Call off the evacuation of a VM or VMI from its node."""
    from virt_core.apis.base import encode
    from virt_core.apis.vmi import VirtualMachineInstance
    from virtctl.session import session

    wanted = parse_target(target)
    with session(settings) as cluster:
        vmi = cluster.client.get(VirtualMachineInstance, wanted.name, cluster.namespace)
        if not vmi.status.node_name:
            raise click.ClickException(f"{wanted.kind} {cluster.namespace}/{wanted.name} is on no node")
        options: dict[str, Any] = {"evacuationNodeName": vmi.status.node_name}
        if dry_run:
            options["dryRun"] = ["All"]
        path = subresource_path(cluster.namespace, wanted.name, "evacuate/cancel", wanted.kind)
        cluster.client.raw("PUT", path, body=encode(options))
        click.echo(f"{wanted.kind.upper()} {cluster.namespace}/{wanted.name} was canceled evacuation")
