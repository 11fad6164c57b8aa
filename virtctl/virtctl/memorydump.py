"""`virtctl memory-dump get|download|remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from virt_core.apis import names
from virtctl.cli import command, group
from virtctl.options import Settings
from virtctl.targets import VM, part, subresource_path

if TYPE_CHECKING:
    from virtctl.session import Session

_NAME = click.argument("name", metavar="VM")
#: What a dump has beside the memory itself, and what a filesystem takes of a claim.
_BESIDE = 100 << 20
_OVERHEAD = 0.055
_MIB = 1 << 20
_MODES = {names.ACCESS_ONE_NODE, names.ACCESS_ALL_NODES}
#: How long a dump, and then its export, may take.
_DUMP_S, _READY_S, _POLL_S = 600.0, 120.0, 2.0
_RETRIES = 2


def _download_options(function: Any) -> Any:
    for option in (
        click.option("--local-port", type=int, default=0, help="Not needed: no port of this machine is opened."),
        click.option("--port-forward", is_flag=True, help="Over the API server, also if there is an external link."),
        click.option(
            "--format",
            "form",
            type=click.Choice(["gzip", "raw"]),
            default="gzip",
            show_default=True,
            help="The archive as it comes, or unpacked by gzip.",
        ),
    ):
        function = option(function)
    return function


COMMANDS = {
    "download": ("virtctl.memorydump:download", "Download the last dump."),
    "get": ("virtctl.memorydump:get", "Write the memory of a VM into a claim."),
    "remove": ("virtctl.memorydump:remove", "Let go of the claim of a VM's memory dumps."),
}


@group("memory-dump", COMMANDS)
def commands() -> None:
    """Write the memory of a running VM into a claim."""


@command("get")
@_NAME
@click.option("--claim-name", default="", metavar="NAME", help="The claim. Default: the one of the last dump.")
@click.option("--create-claim", is_flag=True, help="Make the claim, large enough for the VM's memory.")
@click.option("--storage-class", default="", help="Of the claim that is made. Default: the cluster's.")
@click.option("--access-mode", default=names.ACCESS_ONE_NODE, show_default=True, help="Of the claim that is made.")
@click.option(
    "--output", default="", metavar="FILE", help="Download the dump when it is complete; - is standard output."
)
@_download_options
def get(settings: Settings, name: str, claim_name: str, create_claim: bool, output: str, **given: Any) -> None:
    """Write the memory of a VM into a claim. The guest stands still meanwhile."""
    from virt_core.apis.base import encode
    from virtctl.session import session

    if create_claim and not claim_name:
        raise click.UsageError("--create-claim needs --claim-name")
    claim = {key: given.pop(key) for key in ("storage_class", "access_mode")}
    if claim["access_mode"] not in _MODES:
        raise click.UsageError(f"--access-mode must be {' or '.join(sorted(_MODES))}: a dump is written")
    with session(settings) as cluster:
        if create_claim:
            _make_claim(cluster, name, claim_name, **claim)
        body = encode({"claimName": claim_name} if claim_name else {})
        cluster.client.raw("PUT", subresource_path(cluster.namespace, name, "memorydump", VM), body=body)
        click.echo(f"Successfully submitted memory dump request of VM {name}", err=output == "-")
        words = _download(cluster, name, output, **given) if output else ""
    if words:
        click.echo(words, err=output == "-")


@command("remove")
@_NAME
def remove(settings: Settings, name: str) -> None:
    """Let go of the claim of a VM's memory dumps. What is in the claim stays."""
    from virtctl.session import session

    with session(settings) as cluster:
        cluster.client.raw("PUT", subresource_path(cluster.namespace, name, "removememorydump", VM))
    click.echo(f"Successfully submitted remove memory dump association of VM {name}")


@command("download")
@_NAME
@click.option("--output", required=True, metavar="FILE", help="Where to write; - is standard output.")
@_download_options
def download(settings: Settings, name: str, output: str, **given: Any) -> None:
    """Download the last dump, as a tar archive of the claim. Waits until it is complete."""
    from virtctl.session import session

    with session(settings) as cluster:
        words = _download(cluster, name, output, **given)
    click.echo(words, err=output == "-")


def _download(cluster: Session, name: str, output: str, **given: Any) -> str:
    """By an export of the claim, which goes afterwards unless it was there before."""
    from virt_core.kube.errors import AlreadyExists
    from virtctl.vmexport import objects
    from virtctl.vmexport.fetch import fetch_volume

    claim = _dumped(cluster, name)
    export = f"export-{name}-{claim}"
    try:
        objects.create(cluster, export, ("pvc", claim))
        made = True
    except AlreadyExists:
        made = False
    try:
        found = objects.wait_ready(cluster, export, _READY_S)
        words = fetch_volume(
            cluster, found, output, format=given["form"], port_forward=given["port_forward"], retry=_RETRIES
        )
    finally:
        if made:
            objects.delete(cluster, export)
    return f"Memory dump of VM {name} downloaded: {output}, {words}"


def _dumped(cluster: Session, name: str) -> str:
    """The claim with a dump that is complete."""
    import time

    from virt_core.apis.vm import VirtualMachine
    from virtctl.progress import Progress

    deadline = time.monotonic() + _DUMP_S
    with Progress() as progress:
        while True:
            request = cluster.client.get(VirtualMachine, name, cluster.namespace).status.memory_dump_request
            if request is None:
                raise click.ClickException(f"VM {name} has no memory dump: make one with `virtctl memory-dump get`")
            if request.phase == "Completed":
                return request.claim_name
            if request.phase == "Failed":
                raise click.ClickException(f"the memory dump of VM {name} failed: {request.message}")
            if time.monotonic() > deadline:
                raise click.ClickException(f"the memory dump of VM {name} is {request.phase} after {_DUMP_S:.0f} s")
            progress.update(f"the memory dump of VM {name} is {request.phase}")
            time.sleep(_POLL_S)


def _make_claim(cluster: Session, vm: str, claim: str, *, storage_class: str, access_mode: str) -> None:
    """Raises ClickException when the VM has a claim for its dumps, or the claim exists."""
    from virt_core.apis.vm import VirtualMachine
    from virt_core.apis.vmi import VirtualMachineInstance

    if cluster.client.get(VirtualMachine, vm, cluster.namespace).status.memory_dump_request is not None:
        raise click.ClickException(f"VM {vm} has a claim for its memory dumps: leave --create-claim out")
    vmi = cluster.client.get(VirtualMachineInstance, vm, cluster.namespace)
    spec: dict[str, Any] = {
        "accessModes": [access_mode],
        "resources": {"requests": {"storage": str(_needed(vmi.status.memory, vmi.spec.domain))}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    labels = {names.LABEL_APPLY_STORAGE_PROFILE: "true"}
    document = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim, "labels": labels}}
    _post(cluster, document | {"spec": spec})


def _needed(status: Any, domain: Any) -> int:
    from virt_core.apis.quantity import parse_bytes

    given = domain.memory.guest if domain.memory is not None and domain.memory.guest is not None else None
    if given is None:
        given = status.guest_current if status is not None else domain.resources.requests.get("memory", 0)
    return -(-int((parse_bytes(given) + _BESIDE) * (1 + _OVERHEAD)) // _MIB) * _MIB


def _post(cluster: Session, document: dict[str, Any]) -> None:
    from virt_core.apis.base import encode
    from virt_core.kube.errors import AlreadyExists

    try:
        cluster.client.raw(
            "POST", f"/api/v1/namespaces/{part(cluster.namespace)}/persistentvolumeclaims", body=encode(document)
        )
    except AlreadyExists as error:
        name = document["metadata"]["name"]
        raise click.ClickException(
            f"there is a PersistentVolumeClaim {name} already: leave --create-claim out"
        ) from error
