"""Volumes that come and go: by the VM where there is one, else by the VMI."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import click

from virtctl.cli import command
from virtctl.options import Settings
from virtctl.targets import VM, VMI, part, subresource_path

if TYPE_CHECKING:
    from virtctl.session import Session

_NAME = click.argument("name", metavar="VMI")
_DRY = click.option("--dry-run", is_flag=True, help="Check whether it could be done; change nothing.")
_PERSIST = click.option("--persist", is_flag=True, help="Deprecated: has no effect, volumes are always kept.")
#: The API server's words when the object changed between reading and patching.
_CONCURRENT = "the server rejected our request due to an error in our request"
_TRIES = 15
_NAME_LIMIT = 63
_BUSES = {"disk": ("scsi", "virtio"), "lun": ("scsi",)}
_CACHES = ("none", "writethrough", "writeback")


@command("addvolume")
@_NAME
@click.option("--volume-name", required=True, metavar="NAME", help="The DataVolume or PersistentVolumeClaim.")
@click.option("--disk-name", metavar="NAME", help="Name of disk and volume in the spec. Default: the volume's.")
@click.option("--serial", help="Serial number that the guest sees. Default: the name.")
@click.option("--cache", type=click.Choice(_CACHES), help="Cache mode of the disk.")
@click.option("--disk-type", default="disk", show_default=True, type=click.Choice(list(_BUSES)), help="Kind of disk.")
@click.option("--bus", default="scsi", show_default=True, help="Bus of the disk: scsi or virtio; scsi for a LUN.")
@_PERSIST
@_DRY
def addvolume(settings: Settings, name: str, volume_name: str, dry_run: bool, **disk: Any) -> None:
    """Add a volume to a VM. It stays with the VM over restarts."""
    from virtctl.session import session

    disk_name = disk["disk_name"] or volume_name
    if len(disk_name) > _NAME_LIMIT:
        raise click.UsageError(f"{disk_name!r} has more than {_NAME_LIMIT} characters: give a shorter --disk-name")
    if disk["bus"] not in _BUSES[disk["disk_type"]]:
        buses = " or ".join(_BUSES[disk["disk_type"]])
        raise click.UsageError(f"a {disk['disk_type']} cannot be on bus {disk['bus']!r}: use {buses}")
    with session(settings) as cluster:
        options: dict[str, Any] = {"name": disk_name, "disk": _disk(disk_name, **disk)}
        options["volumeSource"] = _source(cluster, volume_name)
        _submit(cluster, name, "addvolume", options, dry_run)
    click.echo(f"Successfully submitted add volume request to VM {name} for volume {volume_name}")


@command("removevolume")
@_NAME
@click.option("--volume-name", required=True, metavar="NAME", help="Name of the volume in the spec.")
@_PERSIST
@_DRY
def removevolume(settings: Settings, name: str, volume_name: str, persist: bool, dry_run: bool) -> None:  # noqa: ARG001
    """Remove a volume that was added with addvolume."""
    from virtctl.session import session

    with session(settings) as cluster:
        _submit(cluster, name, "removevolume", {"name": volume_name}, dry_run)
    click.echo(f"Successfully submitted remove volume request to VM {name} for volume {volume_name}")


def _disk(name: str, disk_type: str, bus: str, serial: str | None, cache: str | None, **_: Any) -> dict[str, Any]:
    disk: dict[str, Any] = {"name": name, disk_type: {"bus": bus}, "serial": serial or name}
    if cache:
        disk["cache"] = cache
    return disk


def _source(cluster: Session, name: str) -> dict[str, Any]:
    """A DataVolume of that name comes first, then a claim."""
    from virt_core.kube.errors import NotFound

    namespace = cluster.namespace
    where, which = part(namespace), part(name)
    try:
        cluster.client.raw("GET", f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{where}/datavolumes/{which}")
        return {"dataVolume": {"name": name, "hotpluggable": True}}
    except NotFound:
        pass  # No DataVolume, or no CDI at all.
    try:
        cluster.client.raw("GET", f"/api/v1/namespaces/{where}/persistentvolumeclaims/{which}")
    except NotFound as error:
        message = f"there is neither a DataVolume nor a PersistentVolumeClaim {name} in namespace {namespace}"
        raise click.ClickException(message) from error
    return {"persistentVolumeClaim": {"claimName": name, "hotpluggable": True}}


def _submit(cluster: Session, name: str, verb: str, options: dict[str, Any], dry_run: bool) -> None:
    """Tries again when somebody else changed the object at the same moment."""
    from virt_core.apis.base import encode
    from virt_core.kube.errors import ApiError

    body = encode(options | ({"dryRun": ["All"]} if dry_run else {}))
    for attempt in range(1, _TRIES + 1):
        try:
            _put(cluster, name, verb, body)
            return
        except ApiError as error:
            if _CONCURRENT not in str(error) or attempt == _TRIES:
                raise
        time.sleep(attempt * random.uniform(0, 0.005))  # noqa: S311


def _put(cluster: Session, name: str, verb: str, body: bytes) -> None:
    from virt_core.kube.errors import NotFound

    try:
        cluster.client.raw("PUT", subresource_path(cluster.namespace, name, verb, VM), body=body)
    except NotFound:
        cluster.client.raw("PUT", subresource_path(cluster.namespace, name, verb, VMI), body=body)
