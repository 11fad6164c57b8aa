"""Calls that change whether and how a machine runs: each is one PUT on a subresource."""

from __future__ import annotations

from typing import Any

import click

from virtctl.cli import command
from virtctl.options import Settings
from virtctl.targets import VM, VMI, Target, parse_target, subresource_path

_TARGET = click.argument("target", nargs=-1, required=True, metavar="(vm|vmi) NAME")
_VM_NAME = click.argument("name", metavar="VM")
_VMI_NAME = click.argument("name", metavar="VMI")
_DRY = click.option("--dry-run", is_flag=True, help="Check whether it could be done; change nothing.")
_FORCE = click.option("--force", is_flag=True, help="Do not wait for the guest; goes with --grace-period.")
_GRACE = click.option(
    "--grace-period", type=int, metavar="SECONDS", help="Time for the guest to shut down; goes with --force."
)


@command("start")
@_VM_NAME
@click.option("--paused", is_flag=True, help="Start it with its virtual CPUs stopped.")
@click.option("--discard-state", is_flag=True, help="Boot it afresh, and forget the state that it was hibernated with.")
@_DRY
def start(settings: Settings, name: str, paused: bool, discard_state: bool, dry_run: bool) -> None:
    """Start a VM. One that was hibernated goes on where it was."""
    options = ({"paused": True} if paused else {}) | ({"discardState": True} if discard_state else {})
    call(settings, Target(VM, name), "start", options, dry_run=dry_run)


@command("hibernate")
@_VM_NAME
@click.option("--claim-name", default="", metavar="NAME", help="The claim that takes the state. Default: one is made.")
@_DRY
def hibernate(settings: Settings, name: str, claim_name: str, dry_run: bool) -> None:
    """Save memory and devices of a running VM into a claim and end it. Its next start goes on from there."""
    options = {"claimName": claim_name} if claim_name else {}
    call(settings, Target(VM, name), "hibernate", options, dry_run=dry_run)


@command("stop")
@_VM_NAME
@_FORCE
@_GRACE
@_DRY
def stop(settings: Settings, name: str, force: bool, grace_period: int | None, dry_run: bool) -> None:
    """Stop a VM: the guest is asked to shut down and is ended when its time is over."""
    _check_force(force, grace_period)
    call(settings, Target(VM, name), "stop", {"gracePeriod": grace_period} if force else {}, dry_run=dry_run)


@command("restart")
@_VM_NAME
@_FORCE
@_GRACE
@_DRY
def restart(settings: Settings, name: str, force: bool, grace_period: int | None, dry_run: bool) -> None:
    """Restart a VM: it gets a new VMI. With --force the only grace period is 0."""
    _check_force(force, grace_period)
    call(settings, Target(VM, name), "restart", {"gracePeriodSeconds": grace_period} if force else {}, dry_run=dry_run)


@command("pause")
@_TARGET
@_DRY
def pause(settings: Settings, target: tuple[str, ...], dry_run: bool) -> None:
    """Stop the virtual CPUs; the guest's memory stays, and its clock stands still until `unpause`."""
    call(settings, parse_target(target), "pause", {}, dry_run=dry_run, of_vmi=True)


@command("unpause")
@_TARGET
@_DRY
def unpause(settings: Settings, target: tuple[str, ...], dry_run: bool) -> None:
    """Let a paused VM or VMI go on where it was stopped."""
    call(settings, parse_target(target), "unpause", {}, dry_run=dry_run, of_vmi=True)


@command("soft-reboot")
@_VMI_NAME
def soft_reboot(settings: Settings, name: str) -> None:
    """Ask the guest to reboot, by its agent or by the power button. It may refuse."""
    call(settings, Target(VMI, name), "softreboot", None, verb="soft-reboot")


@command("reset")
@_VMI_NAME
def reset(settings: Settings, name: str) -> None:
    """Reset the machine at once, without asking the guest. What it had not written yet is lost."""
    call(settings, Target(VMI, name), "reset", None)


def _check_force(force: bool, grace_period: int | None) -> None:
    if force != (grace_period is not None):
        raise click.UsageError("--force and --grace-period go together: give both or none")


def call(
    settings: Settings,
    target: Target,
    subresource: str,
    options: dict[str, Any] | None,
    *,
    verb: str = "",
    dry_run: bool = False,
    of_vmi: bool = False,
) -> None:
    """`of_vmi`: the subresource is the VMI's also where the target is a VM."""
    from virt_core.apis.base import encode
    from virt_core.apis.vm import VirtualMachine
    from virt_core.kube.errors import NotFound
    from virtctl.session import session

    body = None if options is None else encode(options | ({"dryRun": ["All"]} if dry_run else {}))
    with session(settings) as cluster:
        if of_vmi and target.kind == VM:
            # Its VMI has its name; asking for the VM first makes "there is no such VM" a clear answer.
            cluster.client.get(VirtualMachine, target.name, cluster.namespace)
        path = subresource_path(cluster.namespace, target.name, subresource, VMI if of_vmi else target.kind)
        try:
            cluster.client.raw("PUT", path, body=body)
        except NotFound as error:
            raise click.ClickException(not_found(error, cluster.namespace, target)) from error
    suffix = " (dry run: nothing was changed)" if dry_run else ""
    click.echo(f"{target.kind.upper()} {target.name} was scheduled to {verb or subresource}{suffix}")


def not_found(error: Exception, namespace: str, target: Target) -> str:
    if target.name in str(error):
        return str(error)
    return f"{target.kind} {namespace}/{target.name} does not exist, or virt-api is not installed: {error}"
