"""`virtctl create instancetype`."""

from __future__ import annotations

from typing import Any

import click

from virtctl.cli import command as declare
from virtctl.create.manifest import check_quantity, metadata, output_option, random_name, show
from virtctl.create.params import parse, required
from virtctl.options import Settings

_DEVICE = {"name": "str", "devicename": "str"}


@declare("instancetype")
@click.option("--name", default="", help="Name of the instance type. Default: a random one.")
@click.option("--cpu", type=click.IntRange(1, 2**32 - 1), required=True, help="Number of virtual CPUs.")
@click.option("--memory", required=True, help="Memory of the guest, e.g. 2Gi.")
@click.option("--gpu", multiple=True, metavar="PARAMS", help="A GPU: name:…,devicename:… May be repeated.")
@click.option("--hostdevice", multiple=True, metavar="PARAMS", help="A host device: name:…,devicename:…")
@click.option("--iothreadspolicy", type=click.Choice(["auto", "shared"]), help="How disks share I/O threads.")
@click.option("--namespaced", is_flag=True, help="Make it for one namespace, not for the cluster.")
@output_option
def command(settings: Settings, *, name: str, namespaced: bool, output: str, **options: Any) -> None:
    """Print the manifest of an instance type. With --namespace it is one for that namespace."""
    namespaced = namespaced or bool(settings.namespace)
    spec: dict[str, Any] = {
        "cpu": {"guest": options["cpu"]},
        "memory": {"guest": check_quantity("memory", options["memory"])},
    }
    if gpus := [_device("gpu", text) for text in options["gpu"]]:
        spec["gpus"] = gpus
    if devices := [_device("hostdevice", text) for text in options["hostdevice"]]:
        spec["hostDevices"] = devices
    if options["iothreadspolicy"]:
        spec["ioThreadsPolicy"] = options["iothreadspolicy"]
    manifest = {
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": f"VirtualMachine{'' if namespaced else 'Cluster'}Instancetype",
        "metadata": metadata(settings, name or random_name("instancetype-" if namespaced else "clusterinstancetype-")),
        "spec": spec,
    }
    show(manifest, output)


def _device(flag: str, text: str) -> dict[str, str]:
    params = parse(flag, text, _DEVICE)
    required(flag, params, "name", "devicename")
    return {"name": params["name"], "deviceName": params["devicename"]}
