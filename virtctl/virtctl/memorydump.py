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
_MODES = {names.ACCESS_ONE_NODE, names.ACCESS_ALL_NODES}


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
def get(settings: Settings, name: str, claim_name: str, create_claim: bool, **claim: str) -> None:
    """Write the memory of a VM into a claim. The guest stands still meanwhile."""
    from virt_core.apis.base import encode
    from virtctl.session import session

    if create_claim and not claim_name:
        raise click.UsageError("--create-claim needs --claim-name")
    if claim["access_mode"] not in _MODES:
        raise click.UsageError(f"--access-mode must be {' or '.join(sorted(_MODES))}: a dump is written")
    with session(settings) as cluster:
        if create_claim:
            _make_claim(cluster, name, claim_name, **claim)
        body = encode({"claimName": claim_name} if claim_name else {})
        cluster.client.raw("PUT", subresource_path(cluster.namespace, name, "memorydump", VM), body=body)
    click.echo(f"Successfully submitted memory dump request of VM {name}")


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
def download(settings: Settings, name: str) -> None:
    """Download the last dump. Not built yet."""
    del settings
    raise click.ClickException(
        "the download of a memory dump needs the export of a volume, which is not built yet: "
        f"mount the claim of {name} in a Pod and copy the file"
    )


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
    return int((parse_bytes(given) + _BESIDE) * (1 + _OVERHEAD))


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
