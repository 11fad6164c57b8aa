"""`virtctl migrate VM`, `virtctl migrate-cancel VM`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from virtctl.cli import command
from virtctl.options import Settings
from virtctl.targets import VM, Target, subresource_path

if TYPE_CHECKING:
    from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
    from virt_core.apis.moveview import MoveProgress
    from virtctl.session import Session

_POLL_S = 0.5
_NAME = click.argument("name", metavar="VM")


@command("migrate")
@_NAME
@click.option(
    "--addedNodeSelector",
    "selectors",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="Labels that the target node must have on top of what the VM asks for.",
)
@click.option("--dry-run", is_flag=True, help="Say whether it could be done and what it would take; move nothing.")
@click.option("--wait", is_flag=True, help="Look on until it is over; exit code 1 unless the VM has moved.")
@click.option("--timeout", "minutes", type=float, default=60.0, show_default=True, help="Minutes to wait, with --wait.")
def migrate(  # noqa: PLR0917 - one for each option
    settings: Settings, name: str, selectors: tuple[str, ...], dry_run: bool, wait: bool, minutes: float
) -> None:
    """Move a running VM to another node.

    Returns when the migration is asked for, unless --wait is given. `virtctl explain vmi VM` tells how it goes.
    """
    from virt_core.apis.base import encode
    from virt_core.kube.errors import NotFound
    from virtctl.lifecycle import not_found
    from virtctl.session import session

    options: dict[str, Any] = {}
    if selectors:
        options["addedNodeSelector"] = selector_of(selectors)
    if dry_run:
        options["dryRun"] = ["All"]
    with session(settings) as cluster:
        path = subresource_path(cluster.namespace, name, "migrate", VM)
        try:
            answer = cluster.client.raw("PUT", path, body=encode(options))
        except NotFound as error:
            raise click.ClickException(not_found(error, cluster.namespace, Target(VM, name))) from error
        suffix = " (dry run: nothing was changed)" if dry_run else ""
        click.echo(f"VM {name} was scheduled to migrate{suffix}")
        if dry_run:
            _tell_forecast(answer)
        elif wait:
            _look_on(cluster, name, answer, minutes * 60)


def selector_of(words: tuple[str, ...]) -> dict[str, str]:
    """`a=b,c=d`, as often as it is given. Raises UsageError."""
    found: dict[str, str] = {}
    for word in ",".join(words).split(","):
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--addedNodeSelector: {word!r} is not KEY=VALUE")
        found[key] = value
    return found


def _tell_forecast(answer: bytes) -> None:
    import msgspec

    from virt_core.apis.base import decode
    from virt_core.apis.moveview import MoveForecast
    from virtctl.migrate.words import forecast_lines

    if not answer.strip():
        return  # A server that makes no forecasts.
    try:
        lines = forecast_lines(decode(answer, MoveForecast))
    except msgspec.MsgspecError:
        return
    for line in lines:
        click.echo(line)


def _look_on(cluster: Session, name: str, answer: bytes, within_s: float) -> None:
    from virt_core.apis.movewords import failure, success

    try:
        job, seen = follow(cluster, _job_name(cluster, name, answer), within_s)
    except KeyboardInterrupt:
        click.echo(f"The migration goes on; `virtctl migrate-cancel {name}` gives it up.", err=True)
        raise
    if job.status.phase != "Succeeded":
        raise click.ClickException(f"migration {job.metadata.name} of VM {name} failed: {failure(job)}")
    click.echo(f"VM {name}: {success(job, seen)}")


def _job_name(cluster: Session, vm: str, answer: bytes) -> str:
    """The server says which job it made; one that does not made the newest."""
    from virt_core.apis.base import decode
    from virt_core.apis.migration import VirtualMachineInstanceMigration
    from virtctl.migrate.jobs import of_vmi

    if answer.strip():
        return decode(answer, VirtualMachineInstanceMigration).metadata.name
    jobs = of_vmi(cluster.client, cluster.namespace, vm)
    if not jobs:
        raise click.ClickException(f"there is no migration of VM {vm}; see `kubectl get vmim -n {cluster.namespace}`")
    return jobs[-1].metadata.name


def follow(cluster: Session, job_name: str, within_s: float) -> tuple[Job, MoveProgress | None]:
    """Shows how it goes until it is over. Raises ClickException when that takes too long, or the job is deleted."""
    from virt_core.apis import names
    from virt_core.apis.migration import VirtualMachineInstanceMigration
    from virt_core.apis.movewords import line, steady_line
    from virt_core.kube.errors import NotFound
    from virtctl.migrate.jobs import last_progress, progress
    from virtctl.progress import Progress

    deadline = time.monotonic() + within_s
    with Progress() as shown:
        while True:
            try:
                job = cluster.client.get(VirtualMachineInstanceMigration, job_name, cluster.namespace)
            except NotFound:
                raise click.ClickException(f"migration {job_name} was given up: somebody has deleted it") from None
            if job.status.phase in names.FINAL_PHASES:
                return job, last_progress(cluster.client, job)
            seen = progress(cluster.client, job) if job.status.phase == names.MIGRATION_RUNNING else None
            text = line(job, seen) if shown.live else steady_line(job, seen)
            if time.monotonic() >= deadline:
                raise click.ClickException(f"migration {job_name} is not over after {within_s / 60:.0f} min: {text}")
            shown.update(text)
            time.sleep(_POLL_S)


@command("migrate-cancel")
@_NAME
@click.option("--dry-run", is_flag=True, help="Check whether it could be done; change nothing.")
def cancel(settings: Settings, name: str, dry_run: bool) -> None:
    """Give up the migration of a VM that is under way; the guest goes on where it is."""
    from virt_core.apis.migration import VirtualMachineInstanceMigration
    from virtctl.migrate.jobs import of_vmi, unfinished
    from virtctl.session import session

    with session(settings) as cluster:
        job = unfinished(of_vmi(cluster.client, cluster.namespace, name))
        if job is None:
            raise click.ClickException(f"no migration of VM {cluster.namespace}/{name} is under way")
        cluster.client.delete(
            VirtualMachineInstanceMigration, job.metadata.name, cluster.namespace, uid=job.metadata.uid, dry_run=dry_run
        )
    suffix = " (dry run: nothing was changed)" if dry_run else ""
    click.echo(f"VM {name} was canceled migration{suffix}")
