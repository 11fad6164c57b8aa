"""Service and EndpointSlice."""

from __future__ import annotations

from typing import Any

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import Condition, ObjectMeta
from virt_core.apis.podparts import ObjectReference
from virt_core.apis.quantity import IntOrString


class ServicePort(Struct):
    """A port of a service."""

    port: int
    name: str = ""
    protocol: str = ""
    app_protocol: str | None = None
    target_port: IntOrString | None = None
    node_port: int = 0


class ServiceSpec(Struct):
    """Which Pods a service speaks for."""

    ports: list[ServicePort] = []
    selector: dict[str, str] = {}
    cluster_ip: str = field(default="", name="clusterIP")
    cluster_ips: list[str] = field(default_factory=list, name="clusterIPs")
    type: str = ""
    external_ips: list[str] = field(default_factory=list, name="externalIPs")
    session_affinity: str = ""
    external_name: str = ""
    internal_traffic_policy: str | None = None
    external_traffic_policy: str = ""
    publish_not_ready_addresses: bool = False
    ip_families: list[str] = []
    ip_family_policy: str | None = None


class ServiceStatus(Struct):
    """What a load balancer gave."""

    load_balancer: dict[str, Any] = {}
    conditions: list[Condition] = []


class Service(Struct):
    """A stable name and address for Pods."""

    api_version: str = "v1"
    kind: str = "Service"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ServiceSpec = field(default_factory=ServiceSpec)
    status: ServiceStatus = field(default_factory=ServiceStatus)


class EndpointConditions(Struct):
    """Whether an endpoint takes traffic."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(Struct):
    """One backend."""

    addresses: list[str]
    conditions: EndpointConditions | None = None
    hostname: str | None = None
    target_ref: ObjectReference | None = None
    node_name: str | None = None
    zone: str | None = None


class EndpointPort(Struct):
    """A port of all endpoints of a slice."""

    name: str | None = None
    protocol: str | None = None
    port: int | None = None
    app_protocol: str | None = None


class EndpointSlice(Struct):
    """Some backends of a service."""

    api_version: str = "discovery.k8s.io/v1"
    kind: str = "EndpointSlice"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    address_type: str = ""
    endpoints: list[Endpoint] = []
    ports: list[EndpointPort] = []
