"""What a preference may prefer."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct, Uint32
from virt_core.apis.devices import BlockSize, Rng, TPMDevice, VGPUOptions
from virt_core.apis.domain import EFI, CPUFeature, LaunchSecurity
from virt_core.apis.features import ClockOffsetUTC, FeatureAPIC, FeatureHyperv, FeatureKVM, FeatureState, Timer
from virt_core.apis.interfaces import InterfaceMasquerade
from virt_core.apis.quantity import Quantity


class ClockOffset(Struct):
    """The guest's clock. At most one."""

    utc: ClockOffsetUTC | None = None  #: Runs in UTC.
    timezone: str | None = None  #: Runs in a time zone, such as Europe/Berlin.


class ClockPreferences(Struct):
    """The clock."""

    preferred_clock_offset: ClockOffset | None = None  #: What it shows.
    preferred_timer: Timer | None = None  #: The timers.


class SpreadOptions(Struct):
    """How vCPUs are spread."""

    across: str | None = None  #: SocketsCores (default), SocketsCoresThreads or CoresThreads.
    ratio: Uint32 | None = None  #: Cores in a socket, or threads of a core; 2 by default.


class CPUPreferences(Struct):
    """The CPU."""

    #: sockets (default), cores, threads, spread or any.
    preferred_cpu_topology: str | None = field(default=None, name="preferredCPUTopology")
    spread_options: SpreadOptions | None = None  #: How vCPUs are spread.
    #: CPU features.
    preferred_cpu_features: list[CPUFeature] = field(default_factory=list, name="preferredCPUFeatures")


class DevicePreferences(Struct):
    """The devices."""

    preferred_autoattach_graphics_device: bool | None = None  #: Add a video card.
    preferred_autoattach_mem_balloon: bool | None = None  #: Add a memory balloon.
    preferred_autoattach_pod_interface: bool | None = None  #: Add a NIC on the Pod network.
    preferred_autoattach_serial_console: bool | None = None  #: Add a serial console.
    preferred_autoattach_input_device: bool | None = None  #: Add a tablet.
    preferred_disable_hotplug: bool | None = None  #: Leave out what is needed to attach disks later.
    #: Options of vGPUs.
    preferred_virtual_gpu_options: VGPUOptions | None = field(default=None, name="preferredVirtualGPUOptions")
    preferred_sound_model: str = ""  #: The sound card.
    preferred_use_virtio_transitional: bool | None = None  #: Use virtio devices that also speak the old protocol.
    preferred_input_bus: str = ""  #: The bus of input devices.
    preferred_input_type: str = ""  #: The type of input devices.
    preferred_disk_bus: str = ""  #: The bus of disks.
    preferred_lun_bus: str = ""  #: The bus of LUNs.
    preferred_cdrom_bus: str = ""  #: The bus of CD-ROM drives.
    preferred_disk_dedicated_io_thread: bool | None = None  #: Whether virtio disks have IO threads.
    preferred_disk_cache: str = ""  #: The cache mode of disks.
    preferred_disk_io: str = field(default="", name="preferredDiskIO")  #: The IO mode of disks.
    preferred_disk_block_size: BlockSize | None = None  #: The block sizes of disks.
    preferred_interface_model: str = ""  #: The model of NICs.
    preferred_interface_masquerade: InterfaceMasquerade | None = None  #: Put NICs on the Pod network behind NAT.
    preferred_rng: Rng | None = None  #: A source of randomness.
    preferred_block_multi_queue: bool | None = None  #: Give each vCPU a queue of each disk.
    preferred_network_interface_multi_queue: bool | None = None  #: Give each vCPU a queue of each NIC.
    preferred_tpm: TPMDevice | None = field(default=None, name="preferredTPM")  #: A TPM.
    preferred_panic_device_model: str | None = None  #: The model of panic devices.
    preferred_video_type: str = ""  #: The video card.


class FeaturePreferences(Struct):
    """Switches."""

    preferred_acpi: FeatureState | None = None  #: ACPI.
    preferred_apic: FeatureAPIC | None = None  #: The interrupt controller.
    preferred_hyperv: FeatureHyperv | None = None  #: Hyper-V enlightenments.
    preferred_kvm: FeatureKVM | None = None  #: What the guest sees of KVM.
    preferred_pvspinlock: FeatureState | None = None  #: Paravirtual spin locks.
    preferred_smm: FeatureState | None = None  #: System management mode.


class FirmwarePreferences(Struct):
    """The firmware."""

    preferred_use_bios: bool | None = None  #: The classic BIOS.
    preferred_use_bios_serial: bool | None = None  #: Show its messages on the serial console.
    preferred_use_efi: bool | None = None  #: UEFI. Deprecated: use preferredEfi.
    preferred_use_secure_boot: bool | None = None  #: Only start signed code. Deprecated: use preferredEfi.
    preferred_efi: EFI | None = None  #: UEFI.


class MachinePreferences(Struct):
    """The machine."""

    preferred_machine_type: str = ""  #: The machine type.


class VolumePreferences(Struct):
    """Volumes."""

    preferred_storage_class_name: str = ""  #: The storage class of DataVolumes.


class CPUPreferenceRequirement(Struct):
    """What the CPU must have."""

    guest: Uint32  #: vCPUs, at least.


class MemoryPreferenceRequirement(Struct):
    """What the memory must have."""

    guest: Quantity  #: Bytes, at least.


class PreferenceRequirements(Struct):
    """What a machine must have for this preference to make sense."""

    cpu: CPUPreferenceRequirement | None = None  #: The CPU.
    memory: MemoryPreferenceRequirement | None = None  #: The memory.
    architecture: str | None = None  #: The architecture.


class VirtualMachinePreferenceSpec(Struct):
    """What a machine gets where its author said nothing."""

    clock: ClockPreferences | None = None  #: The clock.
    cpu: CPUPreferences | None = None  #: The CPU.
    devices: DevicePreferences | None = None  #: The devices.
    features: FeaturePreferences | None = None  #: Switches.
    firmware: FirmwarePreferences | None = None  #: The firmware.
    machine: MachinePreferences | None = None  #: The machine.
    volumes: VolumePreferences | None = None  #: Volumes.
    preferred_subdomain: str | None = None  #: The subdomain.
    preferred_termination_grace_period_seconds: int | None = None  #: Seconds between the polite and the hard stop.
    requirements: PreferenceRequirements | None = None  #: What the machine must have.
    annotations: dict[str, str] = {}  #: Annotations of the VMI.
    prefer_spread_socket_to_core_ratio: Uint32 = 0  #: Cores in a socket. Deprecated: use cpu.spreadOptions.
    preferred_architecture: str | None = None  #: The architecture.
    preferred_launch_security: LaunchSecurity | None = None  #: Memory encryption.
