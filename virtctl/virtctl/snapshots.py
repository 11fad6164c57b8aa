"""`virtctl snapshot` and `virtctl restore`: each makes one object, and waits for it if that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from virtctl.cli import command
from virtctl.options import Settings
from virtctl.targets import part

if TYPE_CHECKING:
    from virtctl.session import Session

_VM_NAME = click.argument("name", metavar="VM")
_GROUP = "snapshot.kubevirt.io"
_API = f"{_GROUP}/v1beta1"
_WAIT = click.option("--wait", is_flag=True, help="Wait until it is over, and say how it went.")
_WAIT_S, _POLL_S = 600.0, 1.0


@command("snapshot")
@_VM_NAME
@click.option("--name", "called", default="", metavar="NAME", help="Of the snapshot. Default: the VM's, and the time.")
@click.option("--memory", is_flag=True, help="Save the memory of the running VM, too, at the same instant.")
@_WAIT
def snapshot(settings: Settings, name: str, called: str, memory: bool, wait: bool) -> None:
    """Save the disks of a VM. With --memory its guest stands still meanwhile, and a restore goes on from there."""
    from virt_core.apis.snapshot import ANNOTATION_MEMORY

    metadata: dict[str, Any] = {"name": called or _named(name)}
    if memory:
        metadata["annotations"] = {ANNOTATION_MEMORY: "true"}
    spec = {"source": _of_vm(name)}
    _make(settings, "VirtualMachineSnapshot", metadata, spec, wait)


@command("restore")
@_VM_NAME
@click.argument("snapshot_name", metavar="SNAPSHOT")
@click.option("--name", "called", default="", metavar="NAME", help="Of the restore. Default: the VM's, and the time.")
@click.option("--stop", is_flag=True, help="Stop the VM for it. Else the restore waits until it is stopped.")
@_WAIT
def restore(settings: Settings, name: str, snapshot_name: str, *, called: str, stop: bool, wait: bool) -> None:
    """Bring a VM back to a snapshot. If that has the memory, the next start goes on from it."""
    from virt_core.apis.snapshot import STOP_TARGET

    spec: dict[str, Any] = {"target": _of_vm(name), "virtualMachineSnapshotName": snapshot_name}
    if stop:
        spec["targetReadinessPolicy"] = STOP_TARGET
    _make(settings, "VirtualMachineRestore", {"name": called or _named(name)}, spec, wait)


def _named(vm: str) -> str:
    from datetime import UTC, datetime

    return f"{vm[:40]}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _of_vm(name: str) -> dict[str, str]:
    from virt_core.apis.names import GROUP

    return {"apiGroup": GROUP, "kind": "VirtualMachine", "name": name}


def _make(settings: Settings, kind: str, metadata: dict[str, Any], spec: dict[str, Any], wait: bool) -> None:
    from virt_core.apis.base import encode
    from virtctl.session import session

    document = {"apiVersion": _API, "kind": kind, "metadata": metadata, "spec": spec}
    with session(settings) as cluster:
        path = f"/apis/{_API}/namespaces/{part(cluster.namespace)}/{kind.lower()}s"
        cluster.client.raw("POST", path, body=encode(document))
        click.echo(f"{kind} {metadata['name']} was made")
        if wait:
            _await(cluster, kind, f"{path}/{part(metadata['name'])}")
            click.echo(f"{kind} {metadata['name']} is complete")


def _await(cluster: Session, kind: str, path: str) -> None:
    """Raises ClickException."""
    import time

    import msgspec

    deadline = time.monotonic() + _WAIT_S
    while True:
        status = msgspec.json.decode(cluster.client.raw("GET", path)).get("status", {})
        if status.get("complete") or status.get("readyToUse"):
            return
        failed = status.get("phase") == "Failed" or _is_true(status, "Failure")
        if failed:
            raise click.ClickException(f"{kind} failed: {_why(status)}")
        if time.monotonic() > deadline:
            raise click.ClickException(f"{kind} is not complete after {_WAIT_S:.0f} s: {_why(status)}")
        time.sleep(_POLL_S)


def _is_true(status: dict[str, Any], kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in status.get("conditions", []))


def _why(status: dict[str, Any]) -> str:
    error = (status.get("error") or {}).get("message")
    told = next((c.get("reason") for c in status.get("conditions", []) if c.get("type") == "Progressing"), "")
    return str(error or told or "it does not say why")
