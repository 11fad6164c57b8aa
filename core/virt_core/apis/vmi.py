"""VirtualMachineInstance: one machine that runs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from virt_core.apis.base import REQUIRED, SHORT_LIST, Struct
from virt_core.apis.domain import DomainSpec
from virt_core.apis.meta import Condition, ListMeta, ObjectMeta
from virt_core.apis.names import API_VERSION
from virt_core.apis.networks import Network
from virt_core.apis.podparts import ExecAction, HTTPGetAction, PodDNSConfig, PodResourceClaim, TCPSocketAction
from virt_core.apis.scheduling import Affinity, Toleration, TopologySpreadConstraint
from virt_core.apis.vmistatus import (
    Handoff,
    VirtualMachineInstanceGuestOSInfo,
    VirtualMachineInstanceNetworkInterface,
    VirtualMachineInstancePhaseTransitionTimestamp,
    VirtualMachineInstanceStatus,
)
from virt_core.apis.volumes import UtilityVolume, Volume

__all__ = [
    "AccessCredential",
    "Condition",
    "GuestAgentPing",
    "Handoff",
    "Probe",
    "VirtualMachineInstance",
    "VirtualMachineInstanceFileSystem",
    "VirtualMachineInstanceGuestOSInfo",
    "VirtualMachineInstanceList",
    "VirtualMachineInstanceNetworkInterface",
    "VirtualMachineInstancePhaseTransitionTimestamp",
    "VirtualMachineInstanceSpec",
    "VirtualMachineInstanceStatus",
]

_SPREAD_KEYS = Meta(
    extra_json_schema={
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["topologyKey", "whenUnsatisfiable"],
    }
)
_NAME_KEY = Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})


class GuestAgentPing(Struct):
    """A ping of the guest agent."""


class Probe(Struct):
    """A check of the guest: one action and its timing."""

    exec_: ExecAction | None = field(default=None, name="exec")  #: Run a command in the guest.
    guest_agent_ping: GuestAgentPing | None = None  #: Ping the guest agent.
    http_get: HTTPGetAction | None = None  #: Ask by HTTP.
    tcp_socket: TCPSocketAction | None = None  #: Connect to a TCP port.
    initial_delay_seconds: int = 0  #: Seconds before the first check.
    timeout_seconds: int = 0  #: Seconds until a check counts as failed; 1 by default.
    period_seconds: int = 0  #: Seconds between checks; 10 by default.
    success_threshold: int = 0  #: Successes in a row that count; 1 by default.
    failure_threshold: int = 0  #: Failures in a row that count; 3 by default.


class AccessCredentialSecretSource(Struct):
    """A Secret of the same namespace."""

    secret_name: str  #: The Secret's name.


class SSHPublicKeyAccessCredentialSource(Struct):
    """Where the keys come from."""

    secret: AccessCredentialSecretSource | None = None  #: A Secret.


class ConfigDriveSSHPublicKeyAccessCredentialPropagation(Struct):
    """By the ConfigDrive volume."""


class NoCloudSSHPublicKeyAccessCredentialPropagation(Struct):
    """By the NoCloud volume."""


class QemuGuestAgentSSHPublicKeyAccessCredentialPropagation(Struct):
    """By the guest agent."""

    users: list[str]  #: The guest's users that get the keys.


class SSHPublicKeyAccessCredentialPropagationMethod(Struct):
    """How the keys reach the guest. Exactly one."""

    config_drive: ConfigDriveSSHPublicKeyAccessCredentialPropagation | None = None  #: By the ConfigDrive volume.
    no_cloud: NoCloudSSHPublicKeyAccessCredentialPropagation | None = None  #: By the NoCloud volume.
    qemu_guest_agent: QemuGuestAgentSSHPublicKeyAccessCredentialPropagation | None = None  #: By the guest agent.


class SSHPublicKeyAccessCredential(Struct):
    """Public keys for SSH."""

    source: SSHPublicKeyAccessCredentialSource  #: Where they come from.
    propagation_method: SSHPublicKeyAccessCredentialPropagationMethod  #: How they reach the guest.


class UserPasswordAccessCredentialSource(Struct):
    """Where the passwords come from."""

    secret: AccessCredentialSecretSource | None = None  #: A Secret: user names to passwords.


class QemuGuestAgentUserPasswordAccessCredentialPropagation(Struct):
    """By the guest agent."""


class UserPasswordAccessCredentialPropagationMethod(Struct):
    """How the passwords reach the guest."""

    qemu_guest_agent: QemuGuestAgentUserPasswordAccessCredentialPropagation | None = None  #: By the guest agent.


class UserPasswordAccessCredential(Struct):
    """Passwords of the guest's users."""

    source: UserPasswordAccessCredentialSource  #: Where they come from.
    propagation_method: UserPasswordAccessCredentialPropagationMethod  #: How they reach the guest.


class AccessCredential(Struct):
    """A credential that is put into the running guest. Exactly one."""

    ssh_public_key: SSHPublicKeyAccessCredential | None = None  #: Public keys.
    user_password: UserPasswordAccessCredential | None = None  #: Passwords.


class VirtualMachineInstanceSpec(Struct):
    """What a VMI shall be."""

    domain: Annotated[DomainSpec, REQUIRED] = field(default_factory=DomainSpec)  #: The machine.
    priority_class_name: str = ""  #: The priority class of its Pod.
    node_selector: dict[str, str] = {}  #: Labels that its node must have.
    affinity: Affinity | None = None  #: Scheduling constraints.
    scheduler_name: str = ""  #: The scheduler to use.
    tolerations: list[Toleration] = []  #: Taints that its Pod tolerates.
    #: How it is spread.
    topology_spread_constraints: Annotated[list[TopologySpreadConstraint], _SPREAD_KEYS] = []
    eviction_strategy: str | None = None  #: None, LiveMigrate, LiveMigrateIfPossible or External.
    start_strategy: str | None = None  #: Paused: start without running.
    termination_grace_period_seconds: int | None = None  #: Seconds that the guest has to shut down; 30 by default.
    volumes: Annotated[list[Volume], SHORT_LIST] = []  #: Where the bytes of its disks come from.
    utility_volumes: Annotated[list[UtilityVolume], SHORT_LIST] = []  #: Claims that the guest does not see.
    liveness_probe: Probe | None = None  #: The guest is restarted when this fails.
    readiness_probe: Probe | None = None  #: The VMI is ready while this succeeds.
    hostname: str = ""  #: The guest's host name.
    subdomain: str = ""  #: The guest's subdomain.
    networks: Annotated[list[Network], SHORT_LIST] = []  #: What its NICs are connected to.
    dns_policy: str = ""  #: ClusterFirst, ClusterFirstWithHostNet, Default or None.
    dns_config: PodDNSConfig | None = None  #: DNS settings beyond those of the policy.
    access_credentials: Annotated[list[AccessCredential], SHORT_LIST] = []  #: Credentials to put into the guest.
    architecture: str = ""  #: amd64, arm64 or s390x.
    resource_claims: Annotated[list[PodResourceClaim], _NAME_KEY] = []  #: Dynamic resource claims.
    service_account_name: str = ""  #: The service account of its Pod.


class VirtualMachineInstance(Struct):
    """A virtual machine that runs, in one Pod."""

    api_version: str = API_VERSION
    kind: str = "VirtualMachineInstance"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: What it shall be.
    spec: Annotated[VirtualMachineInstanceSpec, REQUIRED] = field(default_factory=VirtualMachineInstanceSpec)
    status: VirtualMachineInstanceStatus = field(default_factory=VirtualMachineInstanceStatus)  #: What became of it.


class VirtualMachineInstanceList(Struct):
    """VMIs."""

    api_version: str = API_VERSION
    kind: str = "VirtualMachineInstanceList"
    metadata: ListMeta = field(default_factory=ListMeta)
    items: list[VirtualMachineInstance] = []


class VirtualMachineInstanceFileSystemDisk(Struct):
    """A disk behind a filesystem of the guest."""

    bus_type: str = ""
    serial: str = ""


class VirtualMachineInstanceFileSystem(Struct):
    """A filesystem of the guest."""

    disk_name: str = ""
    mount_point: str = ""
    file_system_type: str = ""
    used_bytes: int = 0
    total_bytes: int = 0
    disk: list[VirtualMachineInstanceFileSystemDisk] = []
