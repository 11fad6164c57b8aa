"""The downward API: what a Pod may learn about itself, for variables and for files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from virt_core.apis.podparts import ResourceFieldSelector
from virt_core.apis.pods import Container, Pod
from virt_core.apis.quantity import parse_quantity
from virt_local.node.oci.context import ContainerConfigError

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


@dataclass(frozen=True)
class DownwardFacts:
    """What only the node knows."""

    node_name: str = ""
    host_ips: tuple[str, ...] = ()
    pod_ips: tuple[str, ...] = ()
    hostname: str = ""
    cpus: Decimal = Decimal(1)
    memory: int = 0


def needs_pod_ip(container: Container) -> bool:
    """Whether the container's variables wait for the Pod's network."""
    paths = [v.value_from.field_ref.field_path for v in container.env if v.value_from and v.value_from.field_ref]
    return any(path.startswith("status.podIP") for path in paths)


def pod_field(pod: Pod, path: str, facts: DownwardFacts) -> str:
    if match := _SUBSCRIPT.fullmatch(path):
        return _map(pod, match.group(1)).get(match.group(2), "")
    values = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name or facts.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": facts.host_ips[0] if facts.host_ips else "",
        "status.hostIPs": ",".join(facts.host_ips),
        "status.podIP": facts.pod_ips[0] if facts.pod_ips else "",
        "status.podIPs": ",".join(facts.pod_ips),
    }
    if path in values:
        return values[path]
    if path in ("metadata.labels", "metadata.annotations"):
        return "\n".join(f'{key}="{_quoted(value)}"' for key, value in sorted(_map(pod, path[9:]).items()))
    raise ContainerConfigError(f"the field {path!r} is not one that a Pod can learn about itself")


def _map(pod: Pod, which: str) -> dict[str, str]:
    return pod.metadata.labels if which == "labels" else pod.metadata.annotations


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_field(pod: Pod, container: Container, selector: ResourceFieldSelector, facts: DownwardFacts) -> str:
    """A request or limit in units of the divisor, rounded up; a missing limit is what the node has."""
    if selector.container_name:
        container = _container(pod, selector.container_name)
    kind, _, name = selector.resource.partition(".")
    if kind not in ("limits", "requests") or not name:
        raise ContainerConfigError(f"the resource {selector.resource!r} is not limits.NAME or requests.NAME")
    divisor = parse_quantity(selector.divisor) if selector.divisor else Decimal(1)
    amount = _amount(container, kind, name, facts)
    return str(int((amount / (divisor or Decimal(1))).to_integral_value(rounding=ROUND_CEILING)))


def _amount(container: Container, kind: str, name: str, facts: DownwardFacts) -> Decimal:
    resources = container.resources
    if resources is not None:
        found = (resources.limits if kind == "limits" else resources.requests).get(name)
        if found is not None:
            return parse_quantity(found)
    if kind == "requests":
        return Decimal(0)
    return {"cpu": facts.cpus, "memory": Decimal(facts.memory)}.get(name, Decimal(0))


def _container(pod: Pod, name: str) -> Container:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.name == name:
            return container
    raise ContainerConfigError(f"the Pod has no container {name!r}")
