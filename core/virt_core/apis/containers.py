"""The containers of a Pod: command, environment, mounts, probes, confinement."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.podparts import (
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    ObjectFieldSelector,
    ResourceFieldSelector,
    ResourceRequirements,
    TCPSocketAction,
)


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
