"""`virtctl image-upload`: makes the DataVolume, waits until its importer listens, sends the file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virt_core.apis import names
from virtctl.cli import command as declare
from virtctl.options import Settings

if TYPE_CHECKING:
    from virtctl.imageupload.proxy import Proxy
    from virtctl.session import Session

_POLL_S = 1.0
#: A proxy may answer before the disk is whole; its conversion is bounded by whoever does it.
_PROCESSING_S = 24 * 3600
_TYPES = ("dv", "pvc")
_PREFIX = "instancetype.kubevirt.io/default-"


@declare("image-upload")
@click.argument("kind", metavar="dv", type=click.Choice(_TYPES))
@click.argument("name")
@click.option(
    "--image-path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The disk image: raw, qcow2, VMDK, VDI or VHDX, also packed by gzip, xz or zstd.",
)
@click.option("--size", default="", help="Size of the disk. Default: that of the image, if it is raw or qcow2.")
@click.option("--storage-class", default="", help="Of the claim. Default: the cluster's.")
@click.option("--access-mode", default="", help="Of the claim, e.g. ReadWriteMany.")
@click.option("--volume-mode", type=click.Choice(["filesystem", "block"]), help="Of the claim.")
@click.option("--no-create", is_flag=True, help="The DataVolume is there already.")
@click.option("--force-bind", is_flag=True, help="Bind the claim now, also if its class would wait for a first user.")
@click.option("--default-instancetype", default="", help="Instance type for VMs that boot from it.")
@click.option("--default-instancetype-kind", default="", help="Its kind.")
@click.option("--default-preference", default="", help="Preference for VMs that boot from it.")
@click.option("--default-preference-kind", default="", help="Its kind.")
@click.option("--wait-secs", default=300, show_default=True, help="How long the importer may take to listen.")
@click.option("--uploadproxy-url", default="", help="Where disks are sent to. Default: what the cluster says.")
@click.option("--insecure", is_flag=True, help="Take any certificate of the upload proxy.")
@click.option("--retry", default=5, show_default=True, help="How often to send it anew after a failure.")
def command(settings: Settings, kind: str, name: str, image_path: Path, **given: Any) -> None:
    """Upload a disk image into a DataVolume.

    It is sent to the cluster's upload proxy, which needs the right to create uploadtokenrequests. Where the cluster
    names none, it goes over the API server to the Pod that fills the claim: that needs the right to forward its ports.
    """
    from virtctl.session import session

    if kind == "pvc":
        raise click.UsageError("only DataVolumes can be uploaded to: use dv, which makes a claim of that name")
    with session(settings) as cluster:
        from virtctl.imageupload.proxy import find

        proxy = find(cluster, given["uploadproxy_url"], insecure=given["insecure"])
        _check_importer(cluster, direct=proxy is None)
        if not given["no_create"]:
            cluster.client.create(_data_volume(cluster.namespace, name, image_path, **given))
            click.echo(f"DataVolume {cluster.namespace}/{name} created")
        if _wait(cluster, name, given["wait_secs"]):
            click.echo(f"DataVolume {name} has been filled already")
            return
        told = _send(cluster, name, image_path, given["retry"], proxy)
        _wait_done(cluster, name, given["wait_secs"] if proxy is None else _PROCESSING_S)
    click.echo(f"Uploading {image_path} completed successfully: {told}")


def _check_importer(cluster: Session, *, direct: bool) -> None:
    """CDI's importer takes disks from its proxy only."""
    from virt_core.apis.apiextensions import CustomResourceDefinition
    from virt_core.apis.datavolume import DEFINITION, LABEL_IMPORTER
    from virt_core.kube.errors import Forbidden, NotFound

    try:
        labels = cluster.client.get(CustomResourceDefinition, DEFINITION).metadata.labels
    except Forbidden:
        return  # A user need not be allowed to look; whoever fills it will be found out below.
    except NotFound as error:
        raise click.ClickException("the cluster has no DataVolumes (the chart's value dataVolumes.enabled)") from error
    if direct and LABEL_IMPORTER not in labels:
        raise click.ClickException(
            "this cluster's DataVolumes are CDI's, and it names no upload proxy: give --uploadproxy-url"
        )


def _data_volume(namespace: str, name: str, path: Path, **given: Any) -> Any:
    from virt_core.apis.datavolume import KEY_BIND_NOW, DataVolume
    from virt_core.apis.meta import ObjectMeta
    from virtctl.imageupload.send import disk_size

    size = given["size"] or disk_size(path)
    if not size:
        raise click.UsageError("--size is needed: the file does not say it as simply as raw and qcow2 do")
    storage: dict[str, Any] = {"resources": {"requests": {"storage": str(size)}}}
    if given["storage_class"]:
        storage["storageClassName"] = given["storage_class"]
    if given["access_mode"]:
        storage["accessModes"] = [given["access_mode"]]
    if given["volume_mode"] == "block":
        storage["volumeMode"] = names.VOLUME_MODE_BLOCK
    chosen = ("instancetype", "instancetype_kind", "preference", "preference_kind")
    labels = {_PREFIX + each.replace("_", "-"): given[f"default_{each}"] for each in chosen if given[f"default_{each}"]}
    annotations = {KEY_BIND_NOW: ""} if given["force_bind"] else {}
    return DataVolume(
        metadata=ObjectMeta(name=name, namespace=namespace, labels=labels, annotations=annotations),
        spec={"source": {"upload": {}}, "storage": storage},
    )


def _wait(cluster: Session, name: str, wait_s: float) -> bool:
    """Until the importer listens; True: there is nothing left to do."""
    from virt_core.apis.datavolume import DONE, UPLOAD_READY, WAITING

    phase = _until(cluster, name, {UPLOAD_READY, DONE, *WAITING}, wait_s)
    if phase in WAITING:
        raise click.ClickException(f"the claim of {name} is bound when its first user comes; use --force-bind")
    return phase == DONE


def _wait_done(cluster: Session, name: str, wait_s: float) -> None:
    from virt_core.apis.datavolume import DONE

    _until(cluster, name, {DONE}, wait_s)


def _until(cluster: Session, name: str, wanted: set[str], wait_s: float) -> str:
    from virt_core.apis.datavolume import FAILED, DataVolume
    from virtctl.progress import Progress

    deadline = time.monotonic() + wait_s
    with Progress() as progress:
        while True:
            status = cluster.client.get(DataVolume, name, cluster.namespace).status
            if status.phase in wanted:
                return status.phase
            said = [each.message for each in status.conditions if each.message]
            if status.phase == FAILED:
                raise click.ClickException(f"DataVolume {name} failed: {'; '.join(said)}")
            if time.monotonic() > deadline:
                raise click.ClickException(f"DataVolume {name} is {status.phase} after {wait_s} s: {'; '.join(said)}")
            progress.update(f"DataVolume {name} is {status.phase or 'new'}")
            time.sleep(_POLL_S)


def _send(cluster: Session, name: str, path: Path, retries: int, proxy: Proxy | None) -> str:
    from virt_core.apis.importplan import pod_name
    from virtctl.imageupload import proxy as by_proxy
    from virtctl.imageupload.send import SendError, send
    from virtctl.stream.websocket import HandshakeRefused

    for attempt in range(max(retries, 0) + 1):
        try:
            if proxy is not None:
                return by_proxy.send(cluster, proxy, name, path)
            return send(cluster.connection, cluster.namespace, pod_name(name), path)
        except SendError as error:
            if error.final or attempt >= retries:
                raise click.ClickException(f"{path} was not taken: {error}") from error
            click.echo(f"{error}; once more", err=True)
            time.sleep(_POLL_S)
        except HandshakeRefused as error:
            raise click.ClickException(f"the importer cannot be reached: {error.message}") from error
    raise click.ClickException(f"{path} was not sent")
