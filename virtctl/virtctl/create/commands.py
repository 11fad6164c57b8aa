"""The table of kinds."""

from __future__ import annotations

from virtctl.cli import group

COMMANDS = {
    "clone": ("virtctl.create.clone:command", "Print a VirtualMachineClone."),
    "instancetype": ("virtctl.create.instancetype:command", "Print an instance type."),
    "preference": ("virtctl.create.preference:command", "Print a preference."),
    "vm": ("virtctl.create.vm:command", "Print a VirtualMachine."),
}


@group("create", COMMANDS)
def commands() -> None:
    """Print a manifest, for `kubectl create -f -`. Nothing is created."""
