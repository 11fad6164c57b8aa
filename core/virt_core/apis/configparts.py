"""Smaller parts of the cluster's settings."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.meta import LabelSelector
from virt_core.apis.quantity import Quantity


class TokenBucketRateLimiter(Struct):
    """A token bucket."""

    qps: float  #: Calls a second.
    burst: int  #: Calls at once.


class RateLimiter(Struct):
    """How calls are limited."""

    token_bucket_rate_limiter: TokenBucketRateLimiter | None = None  #: By a token bucket.


class RESTClientConfiguration(Struct):
    """The API client."""

    rate_limiter: RateLimiter | None = None  #: How its calls are limited.


class ReloadableComponentConfiguration(Struct):
    """Settings of one program."""

    rest_client: RESTClientConfiguration | None = None  #: Its API client.


class ChangedBlockTrackingSelectors(Struct):
    """Whose changed blocks are tracked."""

    namespace_label_selector: LabelSelector | None = None  #: By labels of the namespace.
    virtual_machine_label_selector: LabelSelector | None = None  #: By labels of the VM.


class CommonInstancetypesDeployment(Struct):
    """Common instance types."""

    enabled: bool | None = None  #: Whether they are installed.


class TDXAttestationConfiguration(Struct):
    """Attestation of TDX guests."""

    qgs_socket_path: str = ""  #: The socket of the quote service.
    enforced: bool | None = None  #: Whether it is a must.


class TDXConfiguration(Struct):
    """Intel TDX."""

    attestation: TDXAttestationConfiguration | None = None  #: Attestation.


class ConfidentialComputeConfiguration(Struct):
    """Memory encryption."""

    tdx: TDXConfiguration | None = None  #: Intel TDX.


class HypervisorConfiguration(Struct):
    """A hypervisor."""

    name: str = ""  #: kvm.


class KSMConfiguration(Struct):
    """Which nodes merge equal pages."""

    node_label_selector: LabelSelector | None = None  #: By their labels.


class NodeMediatedDeviceTypesConfig(Struct):
    """Devices to make on some nodes."""

    node_selector: dict[str, str] = {}  #: Labels of the nodes.
    mediated_device_types: list[str] = []  #: The types.
    mediated_devices_types: list[str] = []  #: The types. Deprecated.


class MediatedDevicesConfiguration(Struct):
    """Devices to make on nodes."""

    mediated_device_types: list[str] = []  #: The types.
    mediated_devices_types: list[str] = []  #: The types. Deprecated.
    node_mediated_device_types: list[NodeMediatedDeviceTypesConfig] = []  #: Other types for some nodes.
    enabled: bool | None = None  #: Whether devices are made; true by default.


class PciHostDevice(Struct):
    """A PCI device that guests may have."""

    pci_vendor_selector: str  #: Vendor and product, such as 10de:1eb8.
    resource_name: str  #: The resource name.
    external_resource_provider: bool = False  #: Whether another device plugin offers it.


class MediatedHostDevice(Struct):
    """A mediated device that guests may have."""

    mdev_name_selector: str  #: The name of its type.
    resource_name: str  #: The resource name.
    external_resource_provider: bool = False  #: Whether another device plugin offers it.


class USBSelector(Struct):
    """A USB device."""

    vendor: str  #: The vendor.
    product: str  #: The product.


class USBHostDevice(Struct):
    """USB devices that guests may have."""

    resource_name: str  #: The resource name.
    selectors: list[USBSelector] = []  #: The devices.
    external_resource_provider: bool = False  #: Whether another device plugin offers it.


class PermittedHostDevices(Struct):
    """Devices that guests may have."""

    pci_host_devices: list[PciHostDevice] = []  #: PCI devices.
    mediated_devices: list[MediatedHostDevice] = []  #: Mediated devices.
    usb: list[USBHostDevice] = []  #: USB devices.


class PersistentReservationConfiguration(Struct):
    """SCSI reservations."""

    enabled: bool | None = None  #: Whether they are allowed.


class CustomProfile(Struct):
    """A profile of one's own."""

    localhost_profile: str | None = None  #: The profile's path on the node.
    runtime_default_profile: bool = False  #: That of the container runtime.


class VirtualMachineInstanceProfile(Struct):
    """The profile of launchers."""

    custom_profile: CustomProfile | None = None  #: A profile of one's own.


class SeccompConfiguration(Struct):
    """The seccomp profile of launchers."""

    virtual_machine_instance_profile: VirtualMachineInstanceProfile | None = None  #: The profile.


class ResourceRequirementsWithoutClaims(Struct):
    """What is reserved and what may be used."""

    requests: dict[str, Quantity] = {}  #: What is reserved.
    limits: dict[str, Quantity] = {}  #: What may not be exceeded.


class SupportContainerResources(Struct):
    """What a helper container may take."""

    type: str  #: Which one.
    #: How much.
    resources: Annotated[ResourceRequirementsWithoutClaims, REQUIRED] = field(
        default_factory=ResourceRequirementsWithoutClaims
    )


class TLSConfiguration(Struct):
    """TLS."""

    min_tls_version: str = field(default="", name="minTLSVersion")  #: VersionTLS10 to VersionTLS13.
    ciphers: list[str] = []  #: The ciphers.


class VirtTemplateDeployment(Struct):
    """VM templates."""

    enabled: bool | None = None  #: Whether they are installed.


class DisableFreePageReporting(Struct):
    """No free page reporting."""


class DisableSerialConsoleLog(Struct):
    """No log of the serial console."""


class VirtualMachineOptions(Struct):
    """Defaults of machines."""

    disable_free_page_reporting: DisableFreePageReporting | None = None  #: No free page reporting.
    disable_serial_console_log: DisableSerialConsoleLog | None = None  #: No log of the serial console.
