"""The export in the cluster: made with its token, waited for, removed."""

from __future__ import annotations

import base64
import secrets
import string
import time
from typing import TYPE_CHECKING, Any

import click

from virt_core.apis import exportplan, names

if TYPE_CHECKING:
    from virt_core.apis.export import VirtualMachineExport
    from virtctl.session import Session

_POLL_S = 1.0
_TOKEN_LENGTH = 20
#: Flag of a source: its kind and group.
SOURCES = {
    "vm": ("VirtualMachine", names.GROUP),
    "snapshot": ("VirtualMachineSnapshot", "snapshot.kubevirt.io"),
    "pvc": ("PersistentVolumeClaim", ""),
}


def create(cluster: Session, name: str, source: tuple[str, str], **given: Any) -> VirtualMachineExport:
    """With a Secret that goes with it. Raises AlreadyExists."""
    from virt_core.apis.config import Secret
    from virt_core.apis.export import VirtualMachineExport, VirtualMachineExportSpec
    from virt_core.apis.meta import ObjectMeta
    from virt_core.apis.podparts import TypedLocalObjectReference
    from virt_core.apis.registry import owner_reference

    kind, group = SOURCES[source[0]]
    secret = f"secret-{name}"
    made = cluster.client.create(
        VirtualMachineExport(
            metadata=ObjectMeta(
                name=name,
                namespace=cluster.namespace,
                labels=given.get("labels") or {},
                annotations=given.get("annotations") or {},
            ),
            spec=VirtualMachineExportSpec(
                source=TypedLocalObjectReference(kind=kind, name=source[1], api_group=group),
                token_secret_ref=secret,
                ttl_duration=given.get("ttl") or None,
            ),
        )
    )
    token = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(_TOKEN_LENGTH))
    cluster.client.create(
        Secret(
            metadata=ObjectMeta(
                name=secret, namespace=cluster.namespace, owner_references=[owner_reference(made, controller=False)]
            ),
            string_data={exportplan.TOKEN_KEY: token},
            type="Opaque",
        )
    )
    return made


def wait_ready(cluster: Session, name: str, within_s: float) -> VirtualMachineExport:
    from virt_core.apis.export import VirtualMachineExport
    from virtctl.progress import Progress

    deadline = time.monotonic() + within_s
    with Progress() as progress:
        while True:
            found = cluster.client.get(VirtualMachineExport, name, cluster.namespace)
            if found.status.phase == "Ready":
                return found
            ready = next((each for each in found.status.conditions if each.type == "Ready"), None)
            why = ready.message or ready.reason if ready is not None else "virt-controller has not looked at it yet"
            if found.status.phase in ("Skipped", "Terminated"):
                raise click.ClickException(f"VirtualMachineExport {name} is {found.status.phase}: {why}")
            if time.monotonic() > deadline:
                raise click.ClickException(f"VirtualMachineExport {name} is not Ready after {within_s:.0f} s: {why}")
            progress.update(f"VirtualMachineExport {name}: {why}")
            time.sleep(_POLL_S)


def token_of(cluster: Session, export: VirtualMachineExport) -> str:
    from virt_core.apis.config import Secret

    secret = export.status.token_secret_ref or export.spec.token_secret_ref or ""
    found = cluster.client.get(Secret, secret, cluster.namespace).data.get(exportplan.TOKEN_KEY, "")
    token = base64.b64decode(found).decode(errors="replace").strip()
    if not token:
        raise click.ClickException(f"Secret {secret} has no key {exportplan.TOKEN_KEY}")
    return token


def delete(cluster: Session, name: str) -> bool:
    """False: there was none."""
    from virt_core.apis.export import VirtualMachineExport
    from virt_core.kube.errors import NotFound

    try:
        cluster.client.delete(VirtualMachineExport, name, cluster.namespace)
    except NotFound:
        return False
    return True
