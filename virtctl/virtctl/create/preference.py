"""`virtctl create preference`."""

from __future__ import annotations

from typing import Any

import click

from virtctl.cli import command as declare
from virtctl.create.manifest import metadata, output_option, random_name, show
from virtctl.options import Settings

_OLD = ("preferSockets", "preferCores", "preferThreads", "preferSpread", "preferAny")
_TOPOLOGIES = ("sockets", "cores", "threads", "spread", "any", *_OLD)


@declare("preference")
@click.option("--name", default="", help="Name of the preference. Default: a random one.")
@click.option("--cpu-topology", type=click.Choice(_TOPOLOGIES), help="How the guest sees its CPUs.")
@click.option("--machine-type", help="Machine type, e.g. q35.")
@click.option("--volume-storage-class", help="Storage class of volumes.")
@click.option("--namespaced", is_flag=True, help="Make it for one namespace, not for the cluster.")
@output_option
def command(settings: Settings, *, name: str, namespaced: bool, output: str, **options: Any) -> None:
    """Print the manifest of a preference. With --namespace it is one for that namespace."""
    namespaced = namespaced or bool(settings.namespace)
    spec: dict[str, Any] = {}
    if options["volume_storage_class"]:
        spec["volumes"] = {"preferredStorageClassName": options["volume_storage_class"]}
    if options["machine_type"]:
        spec["machine"] = {"preferredMachineType": options["machine_type"]}
    if options["cpu_topology"]:
        spec["cpu"] = {"preferredCPUTopology": options["cpu_topology"]}
    manifest = {
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": f"VirtualMachine{'' if namespaced else 'Cluster'}Preference",
        "metadata": metadata(settings, name or random_name("preference-" if namespaced else "clusterpreference-")),
        "spec": spec,
    }
    show(manifest, output)
