"""The table of commands. Nothing else is imported until one of them is called."""

from __future__ import annotations

import gc
import os
import sys

import click

from virtctl.cli import group
from virtctl.options import Settings

COMMANDS = {
    "addvolume": ("virtctl.volumes:addvolume", "Add a volume to a VM."),
    "adm": ("virtctl.adm.commands:commands", "Administer the installation."),
    "completion": ("virtctl.completion:command", "Print the completion script for your shell."),
    "console": ("virtctl.console.command:command", "Connect to the serial console of a VMI."),
    "create": ("virtctl.create.commands:commands", "Print a manifest for a VM and other kinds."),
    "credentials": ("virtctl.credentials.commands:commands", "Change SSH keys and passwords of a VM."),
    "evacuate-cancel": ("virtctl.evacuate:command", "Call off the evacuation of a VM or VMI."),
    "expand": ("virtctl.expand:command", "Show a VM with its instance type and preference applied."),
    "explain": (
        "virtctl.explain.command:command",
        "Say where a VM, VMI or migration stands and why, with its timeline.",
    ),
    "expose": ("virtctl.expose:command", "Create a Service for a VM, VMI or VMI replica set."),
    "fslist": ("virtctl.guest:fslist", "List the file systems in the guest."),
    "guestfs": ("virtctl.guestfs:command", "Not built; says how to look into a disk instead."),
    "guestosinfo": ("virtctl.guest:guestosinfo", "Show what the guest agent says of the guest."),
    "hibernate": (
        "virtctl.lifecycle:hibernate",
        "Save the memory of a VM and end it until its next start.",
    ),
    "image-upload": ("virtctl.imageupload.command:command", "Upload a disk image into a DataVolume."),
    "memory-dump": ("virtctl.memorydump:commands", "Write the memory of a running VM into a claim."),
    "migrate": ("virtctl.migrate.command:migrate", "Move a running VM to another node."),
    "migrate-cancel": ("virtctl.migrate.command:cancel", "Give up the migration of a VM."),
    "objectgraph": ("virtctl.objectgraph:command", "Show the objects that a VM or VMI depends on."),
    "options": ("virtctl.globals:command", "List the flags that every command takes."),
    "pause": ("virtctl.lifecycle:pause", "Stop the virtual CPUs of a VM or VMI."),
    "permitted-devices": ("virtctl.devices:command", "List the host devices that VMs may have."),
    "port-forward": ("virtctl.portforward.command:command", "Forward local ports to a VM or VMI."),
    "removevolume": ("virtctl.volumes:removevolume", "Take a volume from a VM."),
    "reset": ("virtctl.lifecycle:reset", "Reset a VMI as its reset button would."),
    "restart": ("virtctl.lifecycle:restart", "Restart a VM."),
    "restore": ("virtctl.snapshots:restore", "Bring a VM back to a snapshot."),
    "scp": ("virtctl.ssh.scp:command", "Copy files to or from a VM or VMI."),
    "snapshot": ("virtctl.snapshots:snapshot", "Save the disks of a VM, and its memory if you like."),
    "soft-reboot": ("virtctl.lifecycle:soft_reboot", "Ask the guest of a VMI to reboot."),
    "ssh": ("virtctl.ssh.command:command", "Open an SSH connection to a VM or VMI."),
    "start": ("virtctl.lifecycle:start", "Start a VM."),
    "stop": ("virtctl.lifecycle:stop", "Stop a VM."),
    "unpause": ("virtctl.lifecycle:unpause", "Let the virtual CPUs of a VM or VMI go on."),
    "usbredir": ("virtctl.usbredir:command", "Give a local USB device to a VMI."),
    "userlist": ("virtctl.guest:userlist", "List the users that are logged in to the guest."),
    "version": ("virtctl.version:command", "Print the versions of virtctl and of the server."),
    "vmexport": ("virtctl.vmexport.command:commands", "Export the disks of a VM or a claim, and download them."),
    "vnc": ("virtctl.vnc.command:command", "Open the screen of a VMI, or save a picture of it."),
}


@group(
    "virtctl",
    COMMANDS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "VIRTCTL",
        "max_content_width": 120,
    },
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Control virtual machines that run in Kubernetes Pods.

    Exit codes: 0 done, 1 it did not work; one sentence says why.
    """
    ctx.ensure_object(Settings)


def program_name() -> str:
    """As a plugin of kubectl we are called `kubectl virt`."""
    return "kubectl virt" if os.path.basename(sys.argv[0]).startswith("kubectl") else "virtctl"


#: Imports make many objects and no garbage: Python's own threshold (700) would search them dozens of times.
_COLLECT_AFTER = 20_000


def main() -> None:
    gc.set_threshold(_COLLECT_AFTER)
    cli.main(prog_name=program_name(), complete_var="_VIRTCTL_COMPLETE")
