"""What Services promise, joined with who keeps it: the common view of packets and names. Pure.

Only addresses of Pods count. Whoever may write an EndpointSlice could otherwise have the machine send packets to
itself, or to its neighbours, in its own name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from virt_core.apis.services import Endpoint, EndpointSlice, Service
from virt_local.controllers.services.slices import NONE, SERVICE_NAME

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FAMILIES = {"IPv4": "ip", "IPv6": "ip6"}


@dataclass(frozen=True, slots=True, order=True)
class Backend:
    address: str
    port: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class Frontend:
    """One port of one Service in one family (`ip`, `ip6`)."""

    service: str
    port_name: str
    family: str
    address: str
    protocol: str
    port: int
    node_port: int = 0
    sticky: bool = False
    inside_local: bool = False
    outside_local: bool = False
    backends: tuple[Backend, ...] = ()


@dataclass(frozen=True, slots=True)
class Headless:
    """A Service without an address: its name means its Pods."""

    service: str
    addresses: tuple[str, ...]
    #: Hostname → addresses.
    hosts: tuple[tuple[str, str], ...]
    #: Port name, protocol, number.
    ports: tuple[tuple[str, str, int], ...]


def slices_by_service(pieces: Iterable[EndpointSlice]) -> dict[str, list[EndpointSlice]]:
    found: dict[str, list[EndpointSlice]] = {}
    for piece in pieces:
        name = piece.metadata.labels.get(SERVICE_NAME)
        if name:
            found.setdefault(f"{piece.metadata.namespace}/{name}", []).append(piece)
    return found


def frontends(
    services: Iterable[Service], pieces: dict[str, list[EndpointSlice]], pods: tuple[Network, ...]
) -> list[Frontend]:
    """In a fixed order, so that the same Services always give the same rules."""
    found = []
    for service in sorted(services, key=_key):
        if service.spec.cluster_ip not in ("", NONE):
            for address in service.spec.cluster_ips:
                found += _of_address(service, address, pieces.get(_key(service), []), pods)
    return found


def _of_address(
    service: Service, address: str, pieces: list[EndpointSlice], pods: tuple[Network, ...]
) -> list[Frontend]:
    spec, kind = service.spec, "IPv6" if ":" in address else "IPv4"
    return [
        Frontend(
            service=_key(service),
            port_name=port.name,
            family=FAMILIES[kind],
            address=address,
            protocol=port.protocol.lower(),
            port=port.port,
            node_port=port.node_port,
            sticky=spec.session_affinity == "ClientIP",
            inside_local=spec.internal_traffic_policy == "Local",
            outside_local=spec.external_traffic_policy == "Local",
            backends=_backends(port.name, pieces, kind, pods),
        )
        for port in spec.ports
        if port.protocol in ("TCP", "UDP")
    ]


def _backends(port_name: str, pieces: list[EndpointSlice], kind: str, pods: tuple[Network, ...]) -> tuple[Backend, ...]:
    found = set()
    for piece in pieces:
        if piece.address_type == kind:
            numbers = [port.port for port in piece.ports if (port.name or "") == port_name and port.port]
            ready = [(each, each.addresses[0]) for each in piece.endpoints if _usable(each, pods)]
            found |= {Backend(at, number, each.node_name or "") for each, at in ready for number in numbers}
    return tuple(sorted(found))


def headless(
    services: Iterable[Service], pieces: dict[str, list[EndpointSlice]], pods: tuple[Network, ...]
) -> list[Headless]:
    chosen = [service for service in sorted(services, key=_key) if service.spec.cluster_ip == NONE]
    return [_headless(service, pieces.get(_key(service), []), pods) for service in chosen]


def _headless(service: Service, pieces: list[EndpointSlice], pods: tuple[Network, ...]) -> Headless:
    ready = [(each.hostname or "", each.addresses[0]) for p in pieces for each in p.endpoints if _usable(each, pods)]
    ports = {(p.name or "", (p.protocol or "TCP").lower(), p.port or 0) for piece in pieces for p in piece.ports}
    return Headless(
        service=_key(service),
        addresses=tuple(sorted({address for _, address in ready})),
        hosts=tuple(sorted({(name, address) for name, address in ready if name})),
        ports=tuple(sorted(port for port in ports if port[0] and port[2])),
    )


def _usable(endpoint: Endpoint, pods: tuple[Network, ...]) -> bool:
    conditions = endpoint.conditions
    if (conditions is not None and conditions.ready is False) or not endpoint.addresses:
        return False
    try:
        address = ipaddress.ip_address(endpoint.addresses[0])
    except ValueError:
        return False
    return any(address in network for network in pods if network.version == address.version)


def _key(service: Service) -> str:
    return f"{service.metadata.namespace}/{service.metadata.name}"
