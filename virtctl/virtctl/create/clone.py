"""`virtctl create clone`."""

from __future__ import annotations

from typing import Any

import click

from virt_core.apis import names
from virtctl.cli import command as declare
from virtctl.create.manifest import metadata, output_option, random_name, show
from virtctl.options import Settings

_VM = ("vm", "virtualmachine")
_SNAPSHOT = ("snapshot", "vmsnapshot", "virtualmachinesnapshot")


@declare("clone")
@click.option("--name", default="", help="Name of the clone object. Default: a random one.")
@click.option("--source-name", required=True, help="Name of the VM or snapshot to clone.")
@click.option("--target-name", default="", help="Name of the new VM. Default: a random one.")
@click.option("--source-type", default="vm", show_default=True, help="Kind of the source: vm or vmsnapshot.")
@click.option("--target-type", default="vm", show_default=True, help="Kind of the target: vm.")
@click.option("--label-filter", multiple=True, help="Labels to copy, e.g. '*' or '!some/key'.")
@click.option("--annotation-filter", multiple=True, help="Annotations to copy.")
@click.option("--template-label-filter", multiple=True, help="Labels of the template to copy.")
@click.option("--template-annotation-filter", multiple=True, help="Annotations of the template to copy.")
@click.option("--new-mac-address", multiple=True, metavar="INTERFACE:ADDRESS", help="New MAC address of an interface.")
@click.option("--new-smbios-serial", default="", help="New serial number of the machine.")
@output_option
def command(settings: Settings, *, name: str, output: str, **options: Any) -> None:
    """Print the manifest of a VirtualMachineClone."""
    spec: dict[str, Any] = {
        "source": _reference("source", options["source_type"], options["source_name"]),
        "target": _reference("target", options["target_type"], options["target_name"]),
    }
    spec |= _filters(options, "")
    if template := _filters(options, "template_"):
        spec["template"] = template
    if options["new_mac_address"]:
        spec["newMacAddresses"] = dict(_mac(text) for text in options["new_mac_address"])
    if options["new_smbios_serial"]:
        spec["newSMBiosSerial"] = options["new_smbios_serial"]
    manifest = {
        "apiVersion": "clone.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClone",
        "metadata": metadata(settings, name or random_name("clone-")),
        "spec": spec,
    }
    show(manifest, output)


def _reference(side: str, kind: str, name: str) -> dict[str, str]:
    if kind.lower() in _VM:
        found = {"apiGroup": names.GROUP, "kind": "VirtualMachine"}
    elif kind.lower() in _SNAPSHOT and side == "source":
        found = {"apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot"}
    else:
        supported = "vm, vmsnapshot" if side == "source" else "vm"
        raise click.ClickException(f"{side} type {kind} is not supported. Supported types: {supported}")
    return {**found, "name": name}


def _filters(options: dict[str, Any], prefix: str) -> dict[str, list[str]]:
    found = {f"{kind}Filters": list(options[f"{prefix}{kind}_filter"]) for kind in ("annotation", "label")}
    return {name: values for name, values in found.items() if values}


def _mac(text: str) -> tuple[str, str]:
    interface, _, address = text.partition(":")
    if not interface or not address:
        raise click.ClickException(f"new MAC address {text!r} is not of the form INTERFACE:ADDRESS")
    return interface, address
