"""`virtctl permitted-devices`: the host devices that the KubeVirt object allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from virtctl.cli import command as declare
from virtctl.options import Settings

if TYPE_CHECKING:
    from virt_core.kube.client import KubeClient


@declare("permitted-devices")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Output format.")
def command(settings: Settings, output: str) -> None:
    """List the host devices and GPUs that VMs may have."""
    from virtctl.output import document
    from virtctl.session import session

    with session(settings) as cluster:
        permitted = kubevirt(cluster.client)["spec"].get("configuration", {}).get("permittedHostDevices") or {}
    hosts = [device["resourceName"] for device in permitted.get("pciHostDevices") or []]
    gpus = [device["resourceName"] for device in permitted.get("mediatedDevices") or []]
    if output == "text":
        click.echo(f"Permitted Devices: \nHost Devices: \n{', '.join(hosts)} \nGPU Devices: \n{', '.join(gpus)}")
    else:
        click.echo(document({"hostDevices": hosts, "gpuDevices": gpus}, output), nl=False)


def kubevirt(client: KubeClient) -> dict[str, Any]:
    """The one KubeVirt object, wherever the installation is. Plain: what we do not know must not get lost."""
    import msgspec

    found = msgspec.json.decode(client.raw("GET", "/apis/kubevirt.io/v1/kubevirts"))["items"]
    if not found:
        raise click.ClickException("there is no KubeVirt object in this cluster")
    if len(found) > 1:
        raise click.ClickException("there is more than one KubeVirt object in this cluster")
    result: dict[str, Any] = found[0]
    result.setdefault("spec", {})
    return result
