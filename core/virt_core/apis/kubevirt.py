"""KubeVirt: the installation itself, and with it the cluster's settings."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct, Uint
from virt_core.apis.configuration import KubeVirtConfiguration
from virt_core.apis.meta import Condition, ObjectMeta
from virt_core.apis.names import API_VERSION
from virt_core.apis.podparts import LocalObjectReference
from virt_core.apis.scheduling import Affinity, Toleration


class CertConfig(Struct):
    """How long certificates last."""

    duration: str | None = None  #: How long.
    renew_before: str | None = None  #: How long before their end they are renewed.


class KubeVirtSelfSignConfiguration(Struct):
    """Certificates that the installation signs itself."""

    ca_rotate_interval: str | None = None  #: Deprecated: use ca.duration.
    cert_rotate_interval: str | None = None  #: Deprecated: use server.duration.
    ca_overlap_interval: str | None = None  #: Deprecated: use ca.renewBefore.
    ca: CertConfig | None = None  #: The authority.
    server: CertConfig | None = None  #: The servers.


class KubeVirtCertificateRotateStrategy(Struct):
    """How certificates are renewed."""

    self_signed: KubeVirtSelfSignConfiguration | None = None  #: By the installation itself.


class Flags(Struct):
    """Flags of the programs."""

    api: dict[str, str] = {}  #: Of virt-api.
    controller: dict[str, str] = {}  #: Of virt-controller.
    handler: dict[str, str] = {}  #: Of virt-handler.


class CustomizeComponentsPatch(Struct):
    """A patch of an installed object."""

    resource_name: str  #: The object's name.
    resource_type: str  #: The object's kind.
    patch: str  #: The patch.
    type: str  #: json, merge or strategic.


class CustomizeComponents(Struct):
    """Changes to what is installed."""

    patches: list[CustomizeComponentsPatch] = []  #: Patches.
    flags: Flags | None = None  #: Flags of the programs.


class NodePlacement(Struct):
    """Which nodes a program runs on."""

    node_selector: dict[str, str] = {}  #: Labels that nodes must have.
    affinity: Affinity | None = None  #: Affinity.
    tolerations: list[Toleration] = []  #: Tolerations.


class ComponentConfig(Struct):
    """Where and how often programs run."""

    node_placement: NodePlacement | None = None  #: On which nodes.
    replicas: Uint | None = None  #: How often.


class KubeVirtWorkloadUpdateStrategy(Struct):
    """How running VMIs get a new launcher."""

    workload_update_methods: list[str] = []  #: LiveMigrate, Evict.
    batch_eviction_size: int | None = None  #: How many at once; 10 by default.
    batch_eviction_interval: str | None = None  #: How long between; 1m by default.


class KubeVirtSpec(Struct):
    """The installation, and the cluster's settings."""

    image_tag: str = ""  #: The version.
    image_registry: str = ""  #: Where images come from.
    image_pull_policy: str = ""  #: Always, IfNotPresent or Never.
    image_pull_secrets: list[LocalObjectReference] = []  #: The Secrets to pull with.
    monitor_namespace: str = ""  #: The namespace of the monitoring.
    service_monitor_namespace: str = ""  #: Where service monitors go.
    monitor_account: str = ""  #: The account of the monitoring.
    workload_update_strategy: KubeVirtWorkloadUpdateStrategy | None = None  #: How running VMIs get a new launcher.
    uninstall_strategy: str = ""  #: RemoveWorkloads or BlockUninstallIfWorkloadsExist.
    certificate_rotate_strategy: KubeVirtCertificateRotateStrategy | None = None  #: How certificates are renewed.
    product_version: str = ""  #: The version of the product that it is part of.
    product_name: str = ""  #: The product that it is part of.
    product_component: str = ""  #: The part of the product that it is.
    synchronization_port: str = ""  #: The port of the synchronisation controller.
    configuration: KubeVirtConfiguration = field(default_factory=KubeVirtConfiguration)  #: The cluster's settings.
    infra: ComponentConfig | None = None  #: Where virt-api and virt-controller run.
    workloads: ComponentConfig | None = None  #: Where virt-handler and guests run.
    #: Changes to what is installed.
    customize_components: CustomizeComponents = field(default_factory=CustomizeComponents)


class GenerationStatus(Struct):
    """An installed object as it was last seen."""

    group: str  #: Its group.
    resource: str  #: Its resource.
    name: str  #: Its name.
    last_generation: int  #: Its generation.
    namespace: str = ""  #: Its namespace.
    hash: str = ""  #: The hash of its content.


class KubeVirtStatus(Struct):
    """How the installation is."""

    phase: str = ""  #: Deploying, Deployed, Deleting, Deleted or Error.
    conditions: list[Condition] = []  #: What is observed of it.
    operator_version: str = ""  #: The operator's version.
    target_kube_virt_registry: str = ""  #: Where images will come from.
    target_kube_virt_version: str = ""  #: The version that is being installed.
    target_deployment_config: str = ""  #: What is being installed.
    target_deployment_id: str = field(default="", name="targetDeploymentID")  #: Its name.
    observed_kube_virt_registry: str = ""  #: Where images come from.
    observed_kube_virt_version: str = ""  #: The version that is installed.
    observed_deployment_config: str = ""  #: What is installed.
    observed_deployment_id: str = field(default="", name="observedDeploymentID")  #: Its name.
    observed_generation: int | None = None  #: The generation that was acted on.
    outdated_virtual_machine_instance_workloads: int | None = None  #: VMIs with an old launcher.
    default_architecture: str = ""  #: The default architecture.
    generations: list[GenerationStatus] = []  #: Installed objects.
    synchronization_addresses: list[str] = []  #: Where other clusters reach this one.


class KubeVirt(Struct):
    """The installation, and the cluster's settings."""

    api_version: str = API_VERSION
    kind: str = "KubeVirt"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Annotated[KubeVirtSpec, REQUIRED] = field(default_factory=KubeVirtSpec)  #: What shall be.
    status: KubeVirtStatus = field(default_factory=KubeVirtStatus)  #: What is.
