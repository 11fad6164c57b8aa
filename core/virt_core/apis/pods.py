"""Pods: what the controllers render, the scheduler places and a node runs."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.containers import (
    Capabilities,
    ConfigMapEnvSource,
    ConfigMapKeySelector,
    Container,
    ContainerPort,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    Lifecycle,
    LifecycleHandler,
    PodSecurityContext,
    Probe,
    SeccompProfile,
    SecretEnvSource,
    SecretKeySelector,
    SecurityContext,
    SELinuxOptions,
    SleepAction,
    Sysctl,
    VolumeDevice,
    VolumeMount,
)
from virt_core.apis.meta import ObjectMeta, Time
from virt_core.apis.podparts import LocalObjectReference, PodDNSConfig, PodResourceClaim, ResourceRequirements
from virt_core.apis.podvolumes import Volume
from virt_core.apis.quantity import Quantity
from virt_core.apis.scheduling import Affinity, Toleration, TopologySpreadConstraint

__all__ = [
    "Binding",
    "Capabilities",
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "Container",
    "ContainerPort",
    "ContainerState",
    "ContainerStateRunning",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "EnvFromSource",
    "EnvVar",
    "EnvVarSource",
    "HostAlias",
    "HostIP",
    "Lifecycle",
    "LifecycleHandler",
    "Pod",
    "PodCondition",
    "PodIP",
    "PodReadinessGate",
    "PodSchedulingGate",
    "PodSecurityContext",
    "PodSpec",
    "PodStatus",
    "Probe",
    "SELinuxOptions",
    "SeccompProfile",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecurityContext",
    "SleepAction",
    "Sysctl",
    "VolumeDevice",
    "VolumeMount",
]


class HostAlias(Struct):
    """An entry of the Pod's hosts file."""

    ip: str
    hostnames: list[str] = []


class PodReadinessGate(Struct):
    """A condition that must be True before the Pod is ready."""

    condition_type: str


class PodSchedulingGate(Struct):
    """While a gate is there, the Pod is not scheduled."""

    name: str


class PodSpec(Struct):
    """What a Pod shall be."""

    volumes: list[Volume] = []
    init_containers: list[Container] = []
    containers: list[Container] = []
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    dns_policy: str = ""
    dns_config: PodDNSConfig | None = None
    node_selector: dict[str, str] = {}
    service_account_name: str = ""
    service_account: str = ""
    automount_service_account_token: bool | None = None
    node_name: str = ""
    host_network: bool = False
    host_pid: bool = field(default=False, name="hostPID")
    host_ipc: bool = field(default=False, name="hostIPC")
    share_process_namespace: bool | None = None
    security_context: PodSecurityContext | None = None
    image_pull_secrets: list[LocalObjectReference] = []
    hostname: str = ""
    subdomain: str = ""
    set_hostname_as_fqdn: bool | None = field(default=None, name="setHostnameAsFQDN")
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: list[Toleration] = []
    host_aliases: list[HostAlias] = []
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    readiness_gates: list[PodReadinessGate] = []
    runtime_class_name: str | None = None
    enable_service_links: bool | None = None
    overhead: dict[str, Quantity] = {}
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduling_gates: list[PodSchedulingGate] = []
    resource_claims: list[PodResourceClaim] = []
    host_users: bool | None = None


class PodCondition(Struct):
    """PodScheduled, Initialized, ContainersReady, Ready and others."""

    type: str
    status: str
    observed_generation: int = 0
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class PodIP(Struct):
    """One address of a Pod."""

    ip: str = ""


class HostIP(Struct):
    """One address of a Pod's node."""

    ip: str = ""


class ContainerStateWaiting(Struct):
    """Not started yet, and why."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(Struct):
    """Running since."""

    started_at: Time | None = None


class ContainerStateTerminated(Struct):
    """Ended, with its exit code."""

    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None
    container_id: str = field(default="", name="containerID")


class ContainerState(Struct):
    """One of waiting, running, terminated."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Struct):
    """What a node sees of a container."""

    name: str
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    ready: bool = False
    restart_count: int = 0
    image: str = ""
    image_id: str = field(default="", name="imageID")
    container_id: str = field(default="", name="containerID")
    started: bool | None = None
    #: What the node has booked for it, and what is in force.
    allocated_resources: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None


class PodStatus(Struct):
    """What became of a Pod."""

    observed_generation: int = 0
    phase: str = ""
    conditions: list[PodCondition] = []
    message: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    host_ip: str = field(default="", name="hostIP")
    host_ips: list[HostIP] = field(default_factory=list, name="hostIPs")
    pod_ip: str = field(default="", name="podIP")
    pod_ips: list[PodIP] = field(default_factory=list, name="podIPs")
    start_time: Time | None = None
    init_container_statuses: list[ContainerStatus] = []
    container_statuses: list[ContainerStatus] = []
    qos_class: str = ""


class Pod(Struct):
    """A Pod."""

    api_version: str = "v1"
    kind: str = "Pod"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class Binding(Struct):
    """Binds a Pod to a node: what the scheduler posts to pods/binding."""

    api_version: str = "v1"
    kind: str = "Binding"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    target: dict[str, str] = {}
