"""Nodes, namespaces and events."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import ObjectMeta, Time
from virt_core.apis.podparts import ObjectReference
from virt_core.apis.quantity import Quantity


class Taint(Struct):
    """Keeps Pods without a matching toleration away from a node."""

    key: str
    effect: str
    value: str = ""
    time_added: Time | None = None


class NodeSpec(Struct):
    """What an administrator wants of a node."""

    pod_cidr: str = field(default="", name="podCIDR")
    pod_cidrs: list[str] = field(default_factory=list, name="podCIDRs")
    provider_id: str = field(default="", name="providerID")
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeCondition(Struct):
    """Ready, MemoryPressure, DiskPressure, PIDPressure and others."""

    type: str
    status: str
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class NodeAddress(Struct):
    """InternalIP, ExternalIP or Hostname."""

    type: str
    address: str


class DaemonEndpoint(Struct):
    """A port of the node's agent."""

    port: int = field(default=0, name="Port")


class NodeDaemonEndpoints(Struct):
    """Where the node's agent listens."""

    kubelet_endpoint: DaemonEndpoint | None = None


class NodeSystemInfo(Struct):
    """What a node is made of."""

    machine_id: str = field(default="", name="machineID")
    system_uuid: str = field(default="", name="systemUUID")
    boot_id: str = field(default="", name="bootID")
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""


class ContainerImage(Struct):
    """An image on a node."""

    names: list[str] = []
    size_bytes: int = 0


class NodeStatus(Struct):
    """What a node reports of itself."""

    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    phase: str = ""
    conditions: list[NodeCondition] = []
    addresses: list[NodeAddress] = []
    daemon_endpoints: NodeDaemonEndpoints | None = None
    node_info: NodeSystemInfo | None = None
    images: list[ContainerImage] = []


class Node(Struct):
    """A machine that runs Pods."""

    api_version: str = "v1"
    kind: str = "Node"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class NamespaceCondition(Struct):
    """Why a namespace is not gone yet."""

    type: str
    status: str
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class NamespaceSpec(Struct):
    """What must be done before a namespace goes."""

    finalizers: list[str] = []


class NamespaceStatus(Struct):
    """Active or Terminating."""

    phase: str = ""
    conditions: list[NamespaceCondition] = []


class Namespace(Struct):
    """A room for names."""

    api_version: str = "v1"
    kind: str = "Namespace"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NamespaceSpec = field(default_factory=NamespaceSpec)
    status: NamespaceStatus = field(default_factory=NamespaceStatus)


class EventSource(Struct):
    """Who saw it."""

    component: str = ""
    host: str = ""


class EventSeries(Struct):
    """How often it was seen."""

    count: int = 0
    last_observed_time: Time | None = None


class Event(Struct):
    """Something that happened to an object."""

    api_version: str = "v1"
    kind: str = "Event"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    involved_object: ObjectReference = field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    source: EventSource = field(default_factory=EventSource)
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    count: int = 0
    type: str = ""
    event_time: Time | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
