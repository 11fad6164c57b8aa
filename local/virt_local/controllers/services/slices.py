"""Which EndpointSlices a Service has, from its Pods. Pure.

A slice's name follows from what all its endpoints share, so the same Pods always give the same slices, and whoever
starts anew finds its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.podparts import ObjectReference
from virt_core.apis.pods import Pod
from virt_core.apis.services import Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Service, ServicePort

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
NONE = "None"
#: As many as the real controller puts into one.
_MOST = 100

#: Name, protocol, number and what is spoken, of each port.
Ports = tuple[tuple[str, str, int, str | None], ...]


def chooses(service: Service, pod: Pod) -> bool:
    """A Service without a selector chooses nobody: its endpoints are somebody else's."""
    selector = service.spec.selector
    if not selector or service.metadata.namespace != pod.metadata.namespace:
        return False
    return all(pod.metadata.labels.get(key) == value for key, value in selector.items())


def facts(pod: Pod) -> tuple[object, ...]:
    """All of a Pod that its endpoints show."""
    addresses = tuple(each.ip for each in pod.status.pod_ips)
    going = bool(pod.metadata.deletion_timestamp)
    place = (pod.spec.node_name, pod.spec.hostname, pod.spec.subdomain)
    labels = tuple(sorted(pod.metadata.labels.items()))
    return addresses, is_ready(pod), pod.status.phase, going, place, labels


def is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


def slices_of(service: Service, pods: Iterable[Pod]) -> list[EndpointSlice]:
    """Those that should be there. A Service without any endpoint has an empty one, as on any cluster."""
    members = sorted((pod for pod in pods if _counts(pod)), key=lambda pod: pod.metadata.name)
    found: list[EndpointSlice] = []
    for family in service.spec.ip_families or ["IPv4"]:
        groups: dict[Ports, list[Endpoint]] = {}
        for pod in members:
            address = _address(pod, family)
            if address:
                groups.setdefault(ports_of(service, pod), []).append(_endpoint(service, pod, address))
        for ports, endpoints in (groups or {(): []}).items():
            parts = range(0, max(len(endpoints), 1), _MOST)
            found += [_slice(service, family, ports, endpoints[at : at + _MOST], at) for at in parts]
    return found


def _counts(pod: Pod) -> bool:
    return bool(pod.status.pod_ips) and pod.status.phase not in ("Succeeded", "Failed")


def _address(pod: Pod, family: str) -> str:
    return next((each.ip for each in pod.status.pod_ips if (":" in each.ip) == (family == "IPv6")), "")


def ports_of(service: Service, pod: Pod) -> Ports:
    """A port that the Pod does not name is left out for this Pod."""
    numbers = ((port, _number(port, pod)) for port in service.spec.ports)
    return tuple((port.name, port.protocol or "TCP", number, port.app_protocol) for port, number in numbers if number)


def _number(port: ServicePort, pod: Pod) -> int:
    target = port.target_port
    if not isinstance(target, str):
        return target or port.port
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for named in container.ports:
            if named.name == target and (named.protocol or "TCP") == (port.protocol or "TCP"):
                return named.container_port
    return 0


def _endpoint(service: Service, pod: Pod, address: str) -> Endpoint:
    going, serving = bool(pod.metadata.deletion_timestamp), is_ready(pod)
    ready = service.spec.publish_not_ready_addresses or (serving and not going)
    own_name = pod.spec.hostname if pod.spec.subdomain == service.metadata.name else ""
    meta = pod.metadata
    return Endpoint(
        addresses=[address],
        conditions=EndpointConditions(ready=ready, serving=serving, terminating=going),
        hostname=own_name or None,
        target_ref=ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid),
        node_name=pod.spec.node_name or None,
    )


def _slice(service: Service, family: str, ports: Ports, endpoints: list[Endpoint], at: int) -> EndpointSlice:
    meta = service.metadata
    shared = "|".join((meta.uid, family, str(at), *map(str, ports)))
    owner = OwnerReference(
        api_version="v1", kind="Service", name=meta.name, uid=meta.uid, controller=True, block_owner_deletion=True
    )
    return EndpointSlice(
        metadata=ObjectMeta(
            name=f"{meta.name}-{hashlib.sha256(shared.encode()).hexdigest()[:10]}",
            namespace=meta.namespace,
            labels=_labels(service),
            owner_references=[owner],
        ),
        address_type=family,
        endpoints=endpoints,
        ports=[EndpointPort(name=n, protocol=p, port=number, app_protocol=a) for n, p, number, a in ports],
    )


def _labels(service: Service) -> dict[str, str]:
    labels = {SERVICE_NAME: service.metadata.name, MANAGED_BY: MANAGER}
    return labels | ({HEADLESS: ""} if service.spec.cluster_ip == NONE else {})


def same(there: EndpointSlice, wanted: EndpointSlice) -> bool:
    return (
        there.endpoints == wanted.endpoints
        and there.ports == wanted.ports
        and has_labels(there, wanted.metadata.labels)
        and there.address_type == wanted.address_type
    )


def has_labels(piece: EndpointSlice, labels: Mapping[str, str]) -> bool:
    return all(piece.metadata.labels.get(key) == value for key, value in labels.items())
