"""`virtctl credentials add-ssh-key` and `remove-ssh-key`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from virt_core.apis import names
from virtctl.cli import command
from virtctl.options import Settings

if TYPE_CHECKING:
    from virt_core.apis.vm import VirtualMachine
    from virt_core.kube.client import KubeClient

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.argument("name", metavar="VM"),
    click.option("-u", "--user", required=True, help="User in the guest."),
    click.option("-f", "--file", "path", metavar="FILE", help="File with the public key."),
    click.option("--value", help="The public key itself."),
    click.option("--secret", help="The Secret to change, where the VM has several."),
    click.option("--force", is_flag=True, help="Even if the Secret is not the VM's, or the VM runs."),
)


def _key_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@command("add-ssh-key")
@_key_options
@click.option("--create-secret", is_flag=True, help="Always make a new Secret.")
@click.option("--update-secret", is_flag=True, help="Only change an existing Secret.")
def add(settings: Settings, *, name: str, user: str, create_secret: bool, update_secret: bool, **options: Any) -> None:
    """Add an SSH key for a user of a VM.

    A VM without a Secret for that user gets a new one, which needs a restart to be seen.
    """
    from virt_core.apis.vm import VirtualMachine
    from virtctl.credentials.store import ssh_secrets
    from virtctl.session import session

    if create_secret and update_secret:
        raise click.UsageError("--create-secret and --update-secret exclude each other")
    key = _key(options["path"], options["value"])
    with session(settings) as cluster:
        vm = cluster.client.get(VirtualMachine, name, cluster.namespace)
        if create_secret or not (update_secret or ssh_secrets(vm, user)):
            made = _create(cluster.client, vm, user, key, force=options["force"])
            click.echo(f'Successfully created secret "{made}" with the key')
        else:
            _update(cluster.client, vm, user, key, options)


@command("remove-ssh-key")
@_key_options
def remove(settings: Settings, *, name: str, user: str, secret: str | None, force: bool, **options: Any) -> None:
    """Remove an SSH key of a user of a VM from its Secrets."""
    from virt_core.apis.vm import VirtualMachine
    from virtctl.credentials.store import choose, read, ssh_secrets, write
    from virtctl.session import session

    key = _key(options["path"], options["value"])
    with session(settings) as cluster:
        vm = cluster.client.get(VirtualMachine, name, cluster.namespace)
        names = ssh_secrets(vm, user)
        for one in [choose(secret, names, name)] if secret else names:
            found = read(cluster.client, one, vm, force=force)
            if changes := _without(found.data, key):
                write(cluster.client, found, changes)
                click.echo(f'Successfully removed the key from secret "{one}"')
    if not names:
        click.echo(f"No secrets associated with user {user}")


def _key(path: str | None, value: str | None) -> str:
    if bool(path) == bool(value):
        raise click.UsageError("give the key with either --file or --value")
    if value:
        return value.strip()
    try:
        return Path(path or "").read_text().strip()
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {error.strerror}") from error


def _create(client: KubeClient, vm: VirtualMachine, user: str, key: str, *, force: bool) -> str:
    """A Secret of the VM's own, and the access credential that names it."""
    from virt_core.apis.config import Secret
    from virt_core.apis.meta import ObjectMeta, OwnerReference
    from virt_core.apis.vm import VirtualMachine
    from virt_core.kube.patch import JsonPatch, op
    from virtctl.credentials.store import credentials_of

    if vm.status.created and not force:
        raise click.ClickException(
            f"VM {vm.metadata.name} is running and would see a new secret only after a restart: use --force"
        )
    owner = OwnerReference(
        api_version=names.API_VERSION,
        kind="VirtualMachine",
        name=vm.metadata.name,
        uid=vm.metadata.uid,
        controller=True,
    )
    meta = ObjectMeta(
        generate_name=f"{vm.metadata.name}-ssh-key-", namespace=vm.metadata.namespace, owner_references=[owner]
    )
    secret = client.create(Secret(metadata=meta, data={_entry(): _encoded(key)}))
    credential = {
        "sshPublicKey": {
            "source": {"secret": {"secretName": secret.metadata.name}},
            "propagationMethod": {"qemuGuestAgent": {"users": [user]}},
        }
    }
    path = "/spec/template/spec/accessCredentials"
    change = op.add(f"{path}/-", credential) if credentials_of(vm) else op.add(path, [credential])
    patch = JsonPatch([op.test("/metadata/resourceVersion", vm.metadata.resource_version), change])
    client.patch(VirtualMachine, vm.metadata.name, vm.metadata.namespace, patch)
    return secret.metadata.name


def _update(client: KubeClient, vm: VirtualMachine, user: str, key: str, options: dict[str, Any]) -> None:
    from virtctl.credentials.store import choose, read, ssh_secrets, write

    names = ssh_secrets(vm, user)
    if not names:
        raise click.ClickException(f"no secrets specified for user: {user}")
    chosen = choose(options["secret"], names, vm.metadata.name)
    secret = read(client, chosen, vm, force=options["force"])
    if _without(secret.data, key):
        click.echo(f'Secret "{chosen}" already contains this SSH key.')
        return
    write(client, secret, {_entry(): _encoded(key)})
    click.echo(f'Successfully added the key to secret "{chosen}"')


def _without(data: dict[str, str], key: str) -> dict[str, str | None]:
    """The entries that have the key, as they are without it; None where nothing is left."""
    changes: dict[str, str | None] = {}
    for name, value in data.items():
        lines = [line for line in base64.b64decode(value).decode(errors="replace").splitlines() if line.strip()]
        rest = [line for line in lines if not line.strip().startswith(key)]
        if len(rest) < len(lines):
            changes[name] = _encoded("\n".join(rest)) if rest else None
    return changes


def _entry() -> str:
    from virtctl.create.manifest import random_name

    return random_name("ssh-key-")


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
