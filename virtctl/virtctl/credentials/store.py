"""The Secrets behind a VM's access credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from virt_core.apis.config import Secret
    from virt_core.apis.vm import VirtualMachine
    from virt_core.apis.vmi import AccessCredential
    from virt_core.kube.client import KubeClient


def credentials_of(vm: VirtualMachine) -> list[AccessCredential]:
    return list(vm.spec.template.spec.access_credentials) if vm.spec.template else []


def ssh_secrets(vm: VirtualMachine, user: str) -> list[str]:
    """Secrets whose keys the agent puts into that user's account."""
    found = []
    for credential in credentials_of(vm):
        key = credential.ssh_public_key
        if key is None or key.source.secret is None or key.propagation_method.qemu_guest_agent is None:
            continue
        if user in key.propagation_method.qemu_guest_agent.users:
            found.append(key.source.secret.secret_name)
    return found


def password_secrets(vm: VirtualMachine) -> list[str]:
    found = []
    for credential in credentials_of(vm):
        password = credential.user_password
        if password and password.source.secret and password.propagation_method.qemu_guest_agent is not None:
            found.append(password.source.secret.secret_name)
    return found


def choose(wanted: str | None, names: list[str], vm: str) -> str:
    if wanted and wanted not in names:
        raise click.ClickException(f"secret {wanted} is not assigned to VM {vm}")
    if not wanted and len(names) > 1:
        raise click.ClickException(f"VM {vm} has several secrets ({', '.join(names)}): say which with --secret")
    return wanted or names[0]


def read(client: KubeClient, name: str, vm: VirtualMachine, *, force: bool) -> Secret:
    """Only the VM's own Secret, unless forced: another one may be shared by several VMs."""
    from virt_core.apis.config import Secret

    secret = client.get(Secret, name, vm.metadata.namespace)
    owned = any(owner.uid == vm.metadata.uid for owner in secret.metadata.owner_references)
    if not owned and not force:
        raise click.ClickException(f"secret {name} does not belong to VM {vm.metadata.name}: use --force to change it")
    return secret


def write(client: KubeClient, secret: Secret, changes: dict[str, str | None]) -> None:
    """None takes a key out. Fails, rather than overwrites, when somebody else changed the Secret meanwhile."""
    from virt_core.apis.config import Secret
    from virt_core.kube.patch import MergePatch

    meta = secret.metadata
    patch: dict[str, Any] = {"metadata": {"resourceVersion": meta.resource_version}, "data": changes}
    client.patch(Secret, meta.name, meta.namespace, MergePatch(patch))
