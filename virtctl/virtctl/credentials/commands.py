"""The table of credential commands."""

from __future__ import annotations

from virtctl.cli import group

COMMANDS = {
    "add-ssh-key": ("virtctl.credentials.sshkeys:add", "Add an SSH key for a user of a VM."),
    "remove-ssh-key": ("virtctl.credentials.sshkeys:remove", "Remove an SSH key of a user of a VM."),
    "set-password": ("virtctl.credentials.password:command", "Set the password of a user of a VM."),
}


@group("credentials", COMMANDS)
def commands() -> None:
    """Change SSH keys and passwords of a VM, by the guest agent."""
