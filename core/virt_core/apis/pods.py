"""Pods: what the controllers render, the scheduler places and a node runs."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import ObjectMeta, Time
from virt_core.apis.podparts import (
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    LocalObjectReference,
    ObjectFieldSelector,
    PodDNSConfig,
    PodResourceClaim,
    ResourceFieldSelector,
    ResourceRequirements,
    TCPSocketAction,
)
from virt_core.apis.podvolumes import Volume
from virt_core.apis.quantity import Quantity
from virt_core.apis.scheduling import Affinity, Toleration, TopologySpreadConstraint


class ConfigMapKeySelector(Struct):
    """A key of a ConfigMap."""

    key: str
    name: str = ""
    optional: bool | None = None


class SecretKeySelector(Struct):
    """A key of a Secret."""

    key: str
    name: str = ""
    optional: bool | None = None


class EnvVarSource(Struct):
    """Where a variable's value comes from."""

    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: ConfigMapKeySelector | None = None
    secret_key_ref: SecretKeySelector | None = None


class EnvVar(Struct):
    """An environment variable."""

    name: str
    value: str = ""
    value_from: EnvVarSource | None = None


class ConfigMapEnvSource(Struct):
    """All keys of a ConfigMap."""

    name: str = ""
    optional: bool | None = None


class SecretEnvSource(Struct):
    """All keys of a Secret."""

    name: str = ""
    optional: bool | None = None


class EnvFromSource(Struct):
    """All keys of a ConfigMap or Secret as variables."""

    prefix: str = ""
    config_map_ref: ConfigMapEnvSource | None = None
    secret_ref: SecretEnvSource | None = None


class ContainerPort(Struct):
    """A port that a container serves."""

    container_port: int
    name: str = ""
    host_port: int = 0
    protocol: str = ""
    host_ip: str = field(default="", name="hostIP")


class VolumeMount(Struct):
    """Where a volume appears in a container."""

    name: str
    mount_path: str
    read_only: bool = False
    sub_path: str = ""
    sub_path_expr: str = ""
    mount_propagation: str | None = None
    recursive_read_only: str | None = None


class VolumeDevice(Struct):
    """Where a block volume appears in a container."""

    name: str
    device_path: str


class Capabilities(Struct):
    """Kernel capabilities on top of or below the runtime's defaults."""

    add: list[str] = []
    drop: list[str] = []


class SELinuxOptions(Struct):
    """An SELinux label."""

    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class SeccompProfile(Struct):
    """RuntimeDefault, Unconfined or Localhost with a profile's path."""

    type: str
    localhost_profile: str | None = None


class SecurityContext(Struct):
    """How a container is confined."""

    capabilities: Capabilities | None = None
    privileged: bool | None = None
    se_linux_options: SELinuxOptions | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: SeccompProfile | None = None


class Sysctl(Struct):
    """A kernel parameter of the Pod's namespaces."""

    name: str
    value: str


class PodSecurityContext(Struct):
    """How all containers of a Pod are confined."""

    se_linux_options: SELinuxOptions | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: list[int] = []
    fs_group: int | None = None
    fs_group_change_policy: str | None = None
    sysctls: list[Sysctl] = []
    seccomp_profile: SeccompProfile | None = None


class Probe(Struct):
    """A check of a container: one action and its timing."""

    exec_: ExecAction | None = field(default=None, name="exec")
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 0
    period_seconds: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0
    termination_grace_period_seconds: int | None = None


class SleepAction(Struct):
    """A pause before the container is stopped."""

    seconds: int


class LifecycleHandler(Struct):
    """What runs after a container's start or before its stop."""

    exec_: ExecAction | None = field(default=None, name="exec")
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(Struct):
    """Hooks of a container."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None


class Container(Struct):
    """One container of a Pod."""

    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    working_dir: str = ""
    ports: list[ContainerPort] = []
    env_from: list[EnvFromSource] = []
    env: list[EnvVar] = []
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    volume_mounts: list[VolumeMount] = []
    volume_devices: list[VolumeDevice] = []
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


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
