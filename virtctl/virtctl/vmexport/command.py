"""`virtctl vmexport create|download|delete`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virt_core.apis import exportplan
from virtctl.cli import command, group
from virtctl.options import Settings

if TYPE_CHECKING:
    from virtctl.session import Session

COMMANDS = {
    "create": ("virtctl.vmexport.command:create", "Make an export of a VM, a snapshot or a claim."),
    "delete": ("virtctl.vmexport.command:delete", "Remove an export."),
    "download": ("virtctl.vmexport.command:download", "Download a volume or the manifests of an export."),
}
_NAME = click.argument("name")
_READY_S = 120.0


@group("vmexport", COMMANDS)
def commands() -> None:
    """Export the disks of a VM, a snapshot or a claim, and download them."""


def _source_options(function: Any) -> Any:
    for option in reversed(
        (
            click.option(
                "--vm", default="", metavar="NAME", help="Export the volumes of this VM, while it is stopped."
            ),
            click.option("--snapshot", default="", metavar="NAME", help="Export this VirtualMachineSnapshot."),
            click.option("--pvc", default="", metavar="NAME", help="Export this PersistentVolumeClaim."),
            click.option("--ttl", default="", metavar="DURATION", help="How long the export lasts. Default: 2h."),
            click.option("--labels", multiple=True, metavar="KEY=VALUE", help="Labels of the export."),
            click.option("--annotations", multiple=True, metavar="KEY=VALUE", help="Annotations of the export."),
        )
    ):
        function = option(function)
    return function


def _source(given: dict[str, Any]) -> tuple[str, str] | None:
    from virtctl.vmexport.objects import SOURCES

    named = [(flag, given[flag]) for flag in SOURCES if given[flag]]
    if len(named) > 1:
        raise click.UsageError("give one of --vm, --snapshot and --pvc")
    return named[0] if named else None


def _pairs(words: tuple[str, ...], flag: str) -> dict[str, str]:
    found = {}
    for pair in (each for word in words for each in word.split(",")):
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.UsageError(f"{flag} {pair!r} is not KEY=VALUE")
        found[key] = value
    return found


def _made(cluster: Session, name: str, source: tuple[str, str], given: dict[str, Any]) -> None:
    from virtctl.vmexport.objects import create as make

    labels, annotations = _pairs(given["labels"], "--labels"), _pairs(given["annotations"], "--annotations")
    make(cluster, name, source, ttl=given["ttl"], labels=labels, annotations=annotations)


@command("create")
@_NAME
@_source_options
def create(settings: Settings, name: str, **given: Any) -> None:
    """Make an export with a token of its own."""
    from virtctl.session import session

    source = _source(given)
    if source is None:
        raise click.UsageError("give one of --vm, --snapshot and --pvc")
    with session(settings) as cluster:
        _made(cluster, name, source, given)
    click.echo(f"VirtualMachineExport {name} created successfully")


@command("delete")
@_NAME
def delete(settings: Settings, name: str) -> None:
    """Remove an export, with its Pod, its Service and its token."""
    from virtctl.session import session
    from virtctl.vmexport.objects import delete as remove

    with session(settings) as cluster:
        removed = remove(cluster, name)
    words = "deleted successfully" if removed else "does not exist"
    click.echo(f"VirtualMachineExport {name} {words}")


@command("download")
@_NAME
@_source_options
@click.option("--output", default="", metavar="FILE", help="Where to write; - is standard output.")
@click.option("--volume", default="", metavar="NAME", help="Which volume, if there are several.")
@click.option(
    "--format",
    "form",
    type=click.Choice([exportplan.FORMAT_GZIP, exportplan.FORMAT_RAW]),
    default=exportplan.FORMAT_GZIP,
    show_default=True,
    help="Packed as it comes, or unpacked while it is written.",
)
@click.option("--manifest", is_flag=True, help="The manifests that make the VM anew, instead of a volume.")
@click.option("--include-secret", is_flag=True, help="With the Secret that the manifests' downloads need.")
@click.option("--manifest-output-format", type=click.Choice(["yaml", "json"]), default="yaml", help="Of the manifests.")
@click.option("--insecure", is_flag=True, help="Do not check the exporter's certificate.")
@click.option("--keep-vme", is_flag=True, help="Keep an export that was made for this download.")
@click.option("--delete-vme", is_flag=True, help="Remove the export afterwards, also if it was there before.")
@click.option("--port-forward", is_flag=True, help="Over the API server, also if there is an external link.")
@click.option("--local-port", type=int, default=0, help="Not needed: no port of this machine is opened.")
@click.option("--service-url", default="", metavar="HOST[:PORT]", help="Where the exporter's Service is reached.")
@click.option("--retry", default=5, show_default=True, help="How often in a row a broken download may be gone on with.")
@click.option("--readiness-timeout", default="2m", show_default=True, help="How long the export may take to be Ready.")
@click.option("--checksum/--no-checksum", default=True, show_default=True, help="Compare with that of the disk.")
def download(settings: Settings, name: str, **given: Any) -> None:
    """Download a volume of an export. With --vm, --snapshot or --pvc the export is made first and removed at the end.

    A download that broke is gone on with: by itself, or by the same command again. Without an external link it comes
    over the API server, which needs the right to forward ports of Pods.
    """
    from virtctl.session import session

    source = _source(given)
    _check(source, given)
    within_s = _seconds(given["readiness_timeout"])
    with session(settings) as cluster:
        made = source is not None and _made_or_there(cluster, name, source, given)
        try:
            words = _fetch(cluster, name, given, within_s)
        finally:
            if (made and not given["keep_vme"] and not given["manifest"]) or given["delete_vme"]:
                from virtctl.vmexport.objects import delete as remove

                remove(cluster, name)
    if words:
        click.echo(words, err=given["output"] == "-")


def _check(source: tuple[str, str] | None, given: dict[str, Any]) -> None:
    if not given["manifest"] and not given["output"]:
        raise click.UsageError("--output is needed: where to write the volume")
    if given["manifest"] and (given["volume"] or (source is not None and source[0] == "pvc")):
        raise click.UsageError("--manifest is of a VM or a snapshot: it goes with neither --volume nor --pvc")
    if given["keep_vme"] and given["delete_vme"]:
        raise click.UsageError("--keep-vme and --delete-vme are opposites")
    if source is None and given["ttl"]:
        raise click.UsageError("--ttl is for an export that is made: give one of --vm, --snapshot and --pvc")


def _seconds(text: str) -> float:
    try:
        return exportplan.seconds_of(text) or _READY_S
    except ValueError as error:
        raise click.UsageError(f"--readiness-timeout: {error}") from error


def _made_or_there(cluster: Session, name: str, source: tuple[str, str], given: dict[str, Any]) -> bool:
    from virt_core.kube.errors import AlreadyExists

    try:
        _made(cluster, name, source, given)
    except AlreadyExists:
        click.echo(f"VirtualMachineExport {name} is there already and is used", err=True)
        return False
    return True


def _fetch(cluster: Session, name: str, given: dict[str, Any], within_s: float) -> str:
    from virtctl.vmexport.fetch import fetch_manifests, fetch_volume
    from virtctl.vmexport.objects import wait_ready

    export = wait_ready(cluster, name, within_s)
    way = {key: given[key] for key in ("port_forward", "service_url", "insecure")}
    if not given["manifest"]:
        more = {key: given[key] for key in ("volume", "retry", "checksum")}
        words = fetch_volume(cluster, export, given["output"], format=given["form"], **more, **way)
        return f"Download finished successfully: {given['output']}, {words}"
    from virtctl.output import document

    form = given["manifest_output_format"]
    found = fetch_manifests(cluster, export, secret=given["include_secret"], **way)
    if form == "json":
        text = document({"apiVersion": "v1", "kind": "List", "items": found}, form)
    else:
        text = "---\n".join(document(each, form) for each in found)
    if given["output"] in ("", "-"):
        click.echo(text, nl=False)
        return ""
    Path(given["output"]).write_text(text)
    return f"Manifests written to {given['output']}"
