"""`virtctl expose`: a Service in front of a machine's ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from virt_core.apis import names
from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.targets import VM, VMI, VMIRS, Target, parse_target

if TYPE_CHECKING:
    from virt_core.apis.services import ServicePort
    from virtctl.session import Session

_FAMILIES = ["IPv4", "IPv6", "IPv4,IPv6", "IPv6,IPv4"]
_POLICIES = ["SingleStack", "PreferDualStack", "RequireDualStack"]
_KINDS = {VM: "VirtualMachine", VMI: "VirtualMachineInstance", VMIRS: "VirtualMachineInstanceReplicaSet"}


def _choice(values: list[str]) -> click.Choice[str]:
    return click.Choice(values, case_sensitive=False)


@declare("expose")
@click.argument("target", nargs=-1, required=True, metavar="(vmi|vm|vmirs) NAME")
@click.option("--name", "service", required=True, metavar="NAME", help="Name of the Service.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the Service. Default: all ports of the pod network."
)
@click.option("--target-port", default="", help="Port in the guest, by name or number. Default: that of the Service.")
@click.option(
    "--protocol", type=_choice(["TCP", "UDP"]), default="TCP", show_default=True, help="Protocol of the port."
)
@click.option("--port-name", default="", help="Name of the port.")
@click.option(
    "--type",
    "kind",
    type=_choice(["ClusterIP", "NodePort", "LoadBalancer"]),
    default="ClusterIP",
    show_default=True,
    help="Type of the Service.",
)
@click.option("--cluster-ip", default="", help="Cluster IP of the Service; None makes it headless.")
@click.option("--external-ip", default="", help="Another address at which nodes accept its traffic.")
@click.option("--ip-family", type=_choice(_FAMILIES), help="IP family of the Service, or both.")
@click.option("--ip-family-policy", type=_choice(_POLICIES), help="Whether the Service has one IP family or both.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "yaml", "name"]), default="text", help="Output format."
)
def command(settings: Settings, target: tuple[str, ...], output: str, **options: Any) -> None:
    """Create a Service that leads to a VM, a VMI or the VMIs of a replica set. It goes away with them."""
    from virt_core.apis.base import to_plain
    from virtctl.output import document, name_of
    from virtctl.session import session

    wanted = parse_target(target, kinds=(VMI, VM, VMIRS))
    with session(settings) as cluster:
        made = cluster.client.create(_service(cluster, wanted, options))
    plain = {"apiVersion": "v1", "kind": "Service", **to_plain(made)}
    if output == "text":
        click.echo(f"Service {options['service']} successfully created for {wanted.kind} {wanted.name}")
    else:
        click.echo(name_of(plain) if output == "name" else document(plain, output), nl=False)


def _service(cluster: Session, target: Target, options: dict[str, Any]) -> Any:
    from virt_core.apis.meta import ObjectMeta, OwnerReference
    from virt_core.apis.services import Service, ServiceSpec

    uid, selector, ports = _exposed(cluster, target)
    if options["port"]:
        ports = [_port(options)]
    if not ports:
        raise click.ClickException(f"{target.kind} {target.name} declares no ports: give --port")
    owner = OwnerReference(
        api_version=names.API_VERSION, kind=_KINDS[target.kind], name=target.name, uid=uid,
        controller=True, block_owner_deletion=False,
    )  # fmt: skip
    families = (options["ip_family"] or "").split(",") if options["ip_family"] else []
    policy = options["ip_family_policy"] or ("PreferDualStack" if len(families) > 1 else None)
    spec = ServiceSpec(
        ports=ports,
        selector=selector,
        cluster_ip=options["cluster_ip"],
        type=options["kind"],
        external_ips=[options["external_ip"]] if options["external_ip"] else [],
        ip_families=families,
        ip_family_policy=policy,
    )
    meta = ObjectMeta(name=options["service"], namespace=cluster.namespace, owner_references=[owner])
    return Service(metadata=meta, spec=spec)


def _port(options: dict[str, Any]) -> ServicePort:
    from virt_core.apis.services import ServicePort

    wanted = options["target_port"]
    target_port: int | str = int(wanted) if wanted.isdigit() else wanted
    return ServicePort(
        name=options["port_name"],
        protocol=options["protocol"].upper(),
        port=options["port"],
        target_port=target_port or None,
    )


def _exposed(cluster: Session, target: Target) -> tuple[str, dict[str, str], list[ServicePort]]:
    """The object's UID, the labels of its Pods, and its ports on the pod network. Not decoded: it may be newer."""
    import msgspec

    from virt_core.apis.names import LABEL_VMI_ID, vmi_id
    from virtctl.targets import PLURALS, part

    base = f"/apis/kubevirt.io/v1/namespaces/{part(cluster.namespace)}/{PLURALS[target.kind]}/{part(target.name)}"
    obj = msgspec.json.decode(cluster.client.raw("GET", base))
    spec = obj.get("spec", {})
    template = spec if target.kind == VMI else spec.get("template", {}).get("spec", {})
    labels = _selector(spec, target.name) if target.kind == VMIRS else {LABEL_VMI_ID: vmi_id(target.name)}
    return obj["metadata"].get("uid", ""), labels, _pod_network_ports(template)


def _selector(spec: dict[str, Any], name: str) -> dict[str, str]:
    selector = spec.get("selector") or {}
    if selector.get("matchExpressions"):
        raise click.ClickException(f"a Service cannot select by the match expressions of vmirs {name}")
    if not selector.get("matchLabels"):
        raise click.ClickException(f"vmirs {name} has no labels to select by")
    labels: dict[str, str] = selector["matchLabels"]
    return labels


def _pod_network_ports(spec: dict[str, Any]) -> list[ServicePort]:
    from virt_core.apis.services import ServicePort

    names = [network["name"] for network in spec.get("networks", []) if "pod" in network][:1]
    interfaces = spec.get("domain", {}).get("devices", {}).get("interfaces", [])
    ports = [port for interface in interfaces if interface["name"] in names for port in interface.get("ports", [])]
    return [
        ServicePort(name=f"port-{number}", protocol=port.get("protocol", "TCP"), port=port["port"])
        for number, port in enumerate(ports, 1)
    ]
