"""`virtctl credentials set-password`."""

from __future__ import annotations

import base64

import click

from virtctl.cli import command as declare
from virtctl.options import Settings


@declare("set-password")
@click.argument("name", metavar="VM")
@click.option("-u", "--user", required=True, help="User in the guest.")
@click.option("-p", "--password", required=True, help="The password.")
@click.option("--secret", help="The Secret to change, where the VM has several.")
@click.option("--force", is_flag=True, help="Change the Secret even if it does not belong to the VM.")
def command(settings: Settings, *, name: str, user: str, password: str, secret: str | None, force: bool) -> None:
    """Set the password of a user of a VM. The guest agent puts it into the running guest."""
    from virt_core.apis.vm import VirtualMachine
    from virtctl.credentials.store import choose, password_secrets, read, write
    from virtctl.session import session

    with session(settings) as cluster:
        vm = cluster.client.get(VirtualMachine, name, cluster.namespace)
        names = password_secrets(vm)
        if not names:
            raise click.ClickException(f"VM {name} has no access credential of type userPassword")
        chosen = choose(secret, names, name)
        found = read(cluster.client, chosen, vm, force=force)
        write(cluster.client, found, {user: base64.b64encode(password.encode()).decode()})
    click.echo(f'Successfully set password in secret "{chosen}"')
