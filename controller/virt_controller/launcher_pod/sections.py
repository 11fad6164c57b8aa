"""The sections of the launcher Pod, each one fact about it: a function from VMI and configuration to Parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from virt_controller.launcher_pod import memory
from virt_controller.launcher_pod.contributions import NotPermittedError, Parts
from virt_core.apis import bindingplugins, names
from virt_core.apis.facts import grace_seconds
from virt_core.apis.launchsecurity import SEV_FAMILY, TDX, protection
from virt_core.apis.nodedevices import claims_asked, not_permitted, resources_asked
from virt_core.apis.owncpus import vcpus
from virt_core.apis.podparts import ObjectFieldSelector
from virt_core.apis.podroles import Role
from virt_core.apis.pods import ContainerPort, EnvVar, EnvVarSource
from virt_core.apis.quantity import format_bytes, parse_bytes, parse_milli
from virt_core.apis.scheduling import NodeSelector
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig

#: The launcher outlives the guest's grace by this much, and the Pod the launcher's by as much again.
GRACE_MARGIN_S = 15
#: The gate for machines of another architecture than their node's.
ANY_ARCHITECTURE = "CrossArchitectureVirtualization"

#: What kubectl and the API server note on an object is about that object, not about its Pod.
_OWN_ANNOTATIONS = (
    names.ANNOTATION_PREFIX_KUBECTL,
    names.ANNOTATION_LATEST_API_VERSION,
    names.ANNOTATION_STORAGE_API_VERSION,
    names.ANNOTATION_EVICTION_SOURCE,
    # What a Pod says of its networks, nobody says beforehand.
    names.ANNOTATION_NETWORK_STATUS,
    names.ANNOTATION_NETWORK_INFO,
)


@dataclass(frozen=True, slots=True)
class Move:
    """The migration job that a launcher Pod is made for: the guest is to move in, not to start there."""

    job_name: str
    job_uid: str
    #: Labels that the job asks of the node, beside the VMI's own.
    node_selector: Mapping[str, str] = field(default_factory=dict)
    #: Labels of a node whose processor is enough for what the guest sees already.
    processor: Mapping[str, str] = field(default_factory=dict)
    #: Whether it may begin there while part of its memory is still on the way.
    post_copy: bool = False


@dataclass(frozen=True, slots=True)
class TemplateConfig:
    launcher_image: str
    launcher_pull_policy: str = "IfNotPresent"
    #: Whether some node offers the device; a request for what nobody has would never be scheduled.
    kvm: bool = False
    vhost_net: bool = False
    #: What each node says of itself; a request for what nobody offers would never be scheduled either.
    node_labels: Sequence[Mapping[str, str]] = ()
    qemu_timeout_s: int = 240
    #: Whether each launcher Pod gets a user namespace of its own, so that its users are nobody on the node.
    user_namespaces: bool = False
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    #: The claims of the VMI's volumes, by their names.
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    #: The name of the claim with the state of its firmware and TPM.
    state_claim: str = ""
    #: Nodes for which volumes that come and go were made: storage of a node is there and nowhere else.
    near: Sequence[str] = ()
    #: What such volumes ask of a node, each: from another it could never get them.
    reach: Sequence[NodeSelector] = ()
    #: Whether the namespace is one of those whose machines get a CPU limit by themselves.
    limit_cpu: bool = False
    #: The resources of a node that its networks need, by the VMI's name of the network.
    network_resources: Mapping[str, str] = field(default_factory=dict)
    #: None: the guest starts in this Pod.
    move: Move | None = None

    @property
    def role(self) -> Role:
        return Role.ACTIVE if self.move is None else Role.TARGET

    def memory_overhead(self, vmi: VirtualMachineInstance) -> int:
        plugins, ratio = self.cluster.network_bindings, self.cluster.overhead_ratio
        return memory.overhead(vmi, emulated=not self.kvm, ratio=ratio, plugins=plugins)

    @property
    def pull_policy(self) -> str:
        """What the cluster says goes before the flag."""
        return self.cluster.raw.get("imagePullPolicy") or self.launcher_pull_policy


Section = Callable[[VirtualMachineInstance, TemplateConfig], Parts]


def identity(vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    """Whose Pod it is. For people and selectors only: ownership is decided by the controller reference."""
    meta = vmi.metadata
    kept = {key: value for key, value in meta.annotations.items() if not key.startswith(_OWN_ANNOTATIONS)}
    labels = {key: value for key, value in meta.labels.items() if key != names.LABEL_OUTDATED_LAUNCHER}
    return Parts(
        labels=labels
        | {
            names.LABEL_APP: names.APP_LAUNCHER,
            names.LABEL_CREATED_BY: meta.uid,
            names.LABEL_VMI_ID: names.vmi_id(meta.name),
            names.LABEL_VM_NAME: names.vmi_id(vmi.spec.hostname or meta.name),
        },
        annotations=kept
        | {names.ANNOTATION_DOMAIN: meta.name, names.ANNOTATION_DEFAULT_CONTAINER: names.CONTAINER_COMPUTE},
    )


def job(_vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """For which move it is, if it is for one: by this the Pod has a role before the VMI records it."""
    if config.move is None:
        return Parts()
    return Parts(
        labels={names.LABEL_MIGRATION_JOB_UID: config.move.job_uid},
        annotations={names.ANNOTATION_MIGRATION_JOB_NAME: config.move.job_name},
        args=("--role", config.role.value),
    )


def process(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """How the launcher is told what it is for."""
    meta = vmi.metadata
    flags = {
        "--name": meta.name,
        "--namespace": meta.namespace,
        "--uid": meta.uid,
        "--grace-period-seconds": str(grace_seconds(vmi) + GRACE_MARGIN_S),
        "--qemu-timeout": str(config.qemu_timeout_s),
        "--share-dir": names.PATH_SHARE,
        "--private-dir": names.PATH_PRIVATE,
        "--ephemeral-disk-dir": names.PATH_EPHEMERAL_DISKS,
        "--libvirt-dir": names.PATH_LIBVIRT,
    }
    if level := config.cluster.log_level("virtLauncher"):
        flags["--log-level"] = level
    switches = {
        "--allow-emulation": not config.kvm,
        "--no-serial-log": config.cluster.disable_serial_console_log,
        "--no-free-page-reporting": config.cluster.disable_free_page_reporting,
        "--firmware-auto-selection": config.cluster.has("FirmwareAutoSelection"),
        "--devices-near-memory": config.cluster.has("PCINUMAAwareTopology"),
        "--any-architecture": config.cluster.has(ANY_ARCHITECTURE),
        "--keep-after-failure": names.keeps_launcher(meta.annotations),
        "--fail-fast": names.ANNOTATION_FAIL_FAST in meta.annotations,
    }
    args = (word for flag, value in flags.items() for word in (flag, value))
    return Parts(args=(*args, *(switch for switch, on in switches.items() if on)))


def environment(_vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    """Where libvirt as an ordinary user finds its directories, and what keeps the launcher small."""
    values = {
        "HOME": names.PATH_PRIVATE,
        "XDG_CACHE_HOME": f"{names.PATH_PRIVATE}/cache",
        "XDG_CONFIG_HOME": f"{names.PATH_PRIVATE}/config",
        "XDG_DATA_HOME": f"{names.PATH_PRIVATE}/data",
        "XDG_RUNTIME_DIR": names.PATH_LIBVIRT,
        # Threads of a small Python process would otherwise each get an arena of their own.
        "MALLOC_ARENA_MAX": "2",
        # The root is read-only; bytecode comes with the image.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    pod_name = EnvVarSource(field_ref=ObjectFieldSelector(api_version="v1", field_path="metadata.name"))
    return Parts(
        env=(EnvVar(name="POD_NAME", value_from=pod_name), *(EnvVar(name=k, value=v) for k, v in values.items()))
    )


def cpu_and_memory(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    extra = config.memory_overhead(vmi)
    requests = {
        "cpu": f"{millicpu(vmi, config.cluster)}m",
        "memory": format_bytes(memory.request(vmi, extra, config.cluster.memory_overcommit)),
    }
    limits: dict[str, str] = {}
    resources = vmi.spec.domain.resources
    if "cpu" in resources.requests:
        requests["cpu"] = str(resources.requests["cpu"])
    if config.limit_cpu:
        limits["cpu"] = str(vcpus(vmi))
    if "cpu" in resources.limits:
        limits["cpu"] = str(resources.limits["cpu"])
    if "memory" in resources.limits:
        limits["memory"] = format_bytes(memory.beside_pages(vmi, parse_bytes(resources.limits["memory"])) + extra)
    return Parts(requests=requests, limits=limits, annotations={names.ANNOTATION_MEMORY_OVERHEAD: str(extra)})


def millicpu(vmi: VirtualMachineInstance, cluster: ClusterConfig) -> int:
    """CPU that is booked for a machine: so many vCPUs share a core unless they say otherwise."""
    return vcpus(vmi) * 1000 // cluster.cpu_allocation_ratio or parse_milli(cluster.cpu_request)


def devices(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """Host devices, as extended resources: the node checks and counts them, no privilege needed."""
    wanted: dict[str, str] = {}
    interfaces = vmi.spec.domain.devices.interfaces
    rows = [(nic, bindingplugins.row(nic, config.cluster.network_bindings)) for nic in interfaces]
    by_tap = [nic for nic, row in rows if row is not None and row.opens_tap]
    if config.kvm:
        wanted[names.RESOURCE_KVM] = "1"
    if interfaces:
        # Also where no NIC opens a TAP yet: one that is added to the running machine will.
        wanted[names.RESOURCE_TUN] = "1"
    if config.vhost_net and config.kvm and any((nic.model or "virtio") == "virtio" for nic in by_tap):
        wanted[names.RESOURCE_VHOST_NET] = "1"
    if vmi.spec.domain.devices.autoattach_vsock:
        wanted[names.RESOURCE_VHOST_VSOCK] = "1"
    if config.move is not None and config.move.post_copy:
        wanted[names.RESOURCE_USERFAULTFD] = "1"
    return Parts(requests=wanted, limits=wanted)


def node_devices(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """Devices that the guest gets to itself. A name that nobody permits is never asked for: it may be anybody's."""
    for path, why in not_permitted(vmi.spec, config.cluster.permitted_host_devices):
        raise NotPermittedError(f"spec.{path}: {why}")
    counts = Counter(resource for _, resource in resources_asked(vmi.spec))
    counts.update(config.network_resources.values())
    wanted = {resource: str(count) for resource, count in counts.items()}
    kind = protection(vmi.spec)
    if kind in SEV_FAMILY:
        wanted[names.RESOURCE_SEV] = "1"
    elif kind == TDX and vmi.metadata.annotations.get(names.ANNOTATION_QUOTE_SOCKET):
        wanted[names.RESOURCE_TDX] = "1"  # The way to the service that vouches for the guest, if the cluster has one.
    return Parts(requests=wanted, limits=wanted, claims=tuple(claims_asked(vmi.spec)))


def ports(vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    """The guest's ports, so that Services can name them."""
    return Parts(
        ports=tuple(
            ContainerPort(name=port.name or "", protocol=port.protocol or "TCP", container_port=port.port)
            for nic in vmi.spec.domain.devices.interfaces
            for port in nic.ports
        )
    )
