"""The machine of a VMI: CPU, memory, firmware and what else libvirt's domain describes."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct, Uint32
from virt_core.apis.devices import Devices
from virt_core.apis.features import Clock, Features
from virt_core.apis.quantity import Quantity


class ResourceRequirements(Struct):
    """What the machine asks of the node, beside what its own size implies."""

    requests: dict[str, Quantity] = {}  #: What is reserved.
    limits: dict[str, Quantity] = {}  #: What may not be exceeded.
    overcommit_guest_overhead: bool = False  #: Leave the overhead of the machine out of the reservation.


class CPUFeature(Struct):
    """A CPU feature and what to do about it."""

    name: str  #: Its name.
    policy: str = ""  #: force, require (default), optional, disable or forbid.


class NUMAGuestMappingPassthrough(Struct):
    """The node's own topology."""


class NUMA(Struct):
    """How the guest's memory and CPUs map to the node's."""

    guest_mapping_passthrough: NUMAGuestMappingPassthrough | None = None  #: Show the node's own topology.


class Realtime(Struct):
    """For real time guests."""

    mask: str = ""  #: The vCPUs that are scheduled in real time.


class CPU(Struct):
    """The CPU of the machine."""

    cores: Uint32 = 0  #: Cores in a socket.
    sockets: Uint32 = 0  #: Sockets.
    max_sockets: Uint32 = 0  #: Sockets that may be reached while running.
    threads: Uint32 = 0  #: Threads of a core.
    model: str = ""  #: host-model (default), host-passthrough or a named model.
    features: list[CPUFeature] = []  #: Features to add or take away.
    dedicated_cpu_placement: bool = False  #: Give each vCPU a CPU of its own.
    isolate_emulator_thread: bool = False  #: Give the emulator a CPU of its own.
    numa: NUMA | None = None  #: The NUMA mapping.
    realtime: Realtime | None = None  #: Real time scheduling.


class Hugepages(Struct):
    """Memory in huge pages."""

    page_size: str = ""  #: 2Mi or 1Gi on most machines.


class ReservedOverhead(Struct):
    """Memory on top of what the machine is thought to need."""

    added_overhead: Quantity | None = None  #: How much.
    mem_lock: str | None = None  #: NotRequired (default) or Required.


class Memory(Struct):
    """The memory of the machine."""

    guest: Quantity | None = None  #: What the guest sees.
    max_guest: Quantity | None = None  #: What may be reached while running.
    hugepages: Hugepages | None = None  #: Back it with huge pages.
    reserved_overhead: ReservedOverhead | None = None  #: More room for the machine itself.


class Machine(Struct):
    """The machine type."""

    type: str = ""  #: Such as q35 or virt.


class Chassis(Struct):
    """The chassis as SMBIOS shows it."""

    manufacturer: str = ""  #: The manufacturer.
    version: str = ""  #: The version.
    serial: str = ""  #: The serial number.
    asset: str = ""  #: The asset tag.
    sku: str = ""  #: The stock keeping unit.


class BIOS(Struct):
    """The classic BIOS."""

    use_serial: bool | None = None  #: Show its messages on the serial console.


class EFI(Struct):
    """UEFI."""

    secure_boot: bool | None = None  #: Only start signed code; true by default.
    persistent: bool | None = None  #: Keep the variables beyond the VMI.


class Bootloader(Struct):
    """The firmware. At most one."""

    bios: BIOS | None = None  #: The classic BIOS.
    efi: EFI | None = None  #: UEFI.


class KernelBootContainer(Struct):
    """An OCI image that holds a kernel."""

    image: str  #: The image.
    image_pull_secret: str = ""  #: The Secret to pull it with.
    image_pull_policy: str = ""  #: Always, IfNotPresent or Never.
    kernel_path: str = ""  #: The path of the kernel in the image.
    initrd_path: str = ""  #: The path of the initial RAM disk in the image.


class KernelBoot(Struct):
    """Start a kernel directly, without a boot loader."""

    kernel_args: str = ""  #: The kernel's command line.
    container: KernelBootContainer | None = None  #: Where the kernel is.


class ACPI(Struct):
    """ACPI tables from Secret volumes."""

    slic_name_ref: str = ""  #: The volume with a SLIC table.
    msdm_name_ref: str = ""  #: The volume with an MSDM table.


class Firmware(Struct):
    """The firmware and what it starts."""

    uuid: str = ""  #: The machine's UUID; random by default.
    serial: str = ""  #: The machine's serial number.
    bootloader: Bootloader | None = None  #: BIOS or UEFI.
    kernel_boot: KernelBoot | None = None  #: Start a kernel directly.
    acpi: ACPI | None = None  #: More ACPI tables.


class DiskIOThreads(Struct):
    """Threads that do the IO of disks."""

    supplemental_pool_thread_count: Uint32 | None = None  #: The number of threads in the pool.


class SEVPolicy(Struct):
    """The policy of an encrypted guest."""

    encrypted_state: bool | None = None  #: SEV-ES.


class SEVAttestation(Struct):
    """Wait for attestation before the guest runs."""


class SEV(Struct):
    """AMD SEV."""

    policy: SEVPolicy | None = None  #: The policy.
    attestation: SEVAttestation | None = None  #: Wait for attestation.
    session: str = ""  #: The session blob, base64.
    dh_cert: str = ""  #: The Diffie-Hellman key, base64.


class SEVSNP(Struct):
    """AMD SEV-SNP."""


class TDX(Struct):
    """Intel TDX."""


class LaunchSecurity(Struct):
    """Hides the guest's memory from the node. Exactly one."""

    sev: SEV | None = None  #: AMD SEV.
    snp: SEVSNP | None = None  #: AMD SEV-SNP.
    tdx: TDX | None = None  #: Intel TDX.


class DomainSpec(Struct):
    """The machine."""

    resources: ResourceRequirements = field(default_factory=ResourceRequirements)  #: What it asks of the node.
    cpu: CPU | None = None  #: The CPU.
    memory: Memory | None = None  #: The memory.
    machine: Machine | None = None  #: The machine type.
    firmware: Firmware | None = None  #: The firmware.
    clock: Clock | None = None  #: The clock.
    features: Features | None = None  #: Switches.
    devices: Annotated[Devices, REQUIRED] = field(default_factory=Devices)  #: The devices.
    io_threads_policy: str | None = None  #: shared, auto or supplementalPool.
    io_threads: DiskIOThreads | None = None  #: The pool of IO threads.
    chassis: Chassis | None = None  #: The chassis as SMBIOS shows it.
    launch_security: LaunchSecurity | None = None  #: Memory encryption.
    reboot_policy: str | None = None  #: Reboot (default) or Terminate: what a reboot by the guest does.
