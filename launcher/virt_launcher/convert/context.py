"""What the configurators know besides the VMI itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from virt_core.apis import names
from virt_core.apis.domain import CPU
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.record import record
from virt_launcher.convert.architecture import ARCHITECTURES, Architecture
from virt_launcher.disks.sources import DiskSource, FirmwareFiles, KernelFiles

if TYPE_CHECKING:
    from virt_launcher.convert.cpuplan import HostCpu


@record(frozen=True, slots=True)
class Attachment:
    """The network of one interface as virt-netsetup left it."""

    #: Empty where its binding has none.
    tap: str
    mac: str = ""
    mtu: int = 0
    queues: int = 0
    #: Whether the guest shall see its link go and come after a move.
    refresh_link: bool = False


@record(frozen=True, slots=True)
class Smbios:
    """How the machine presents itself. The cluster's configuration may say otherwise."""

    manufacturer: str = "Virtpod"
    product: str = "Virtual Machine"
    version: str = ""
    sku: str = ""
    family: str = "Virtpod"


@record(frozen=True, slots=True, kw_only=True)
class Context:
    vmi: VirtualMachineInstance
    #: Where QEMU puts the sockets of this VM.
    machine_dir: str
    #: KVM can be used here; otherwise software emulation.
    kvm: bool
    libvirt_version: int
    sources: Mapping[str, DiskSource] = field(default_factory=dict)
    kernel: KernelFiles = field(default_factory=KernelFiles)
    firmware: FirmwareFiles = field(default_factory=FirmwareFiles)
    attachments: Mapping[str, Attachment] = field(default_factory=dict)
    smbios: Smbios = field(default_factory=Smbios)
    memballoon_stats_period_s: int = 10
    #: Where the claim is in which the state of firmware and TPM is kept.
    kept_state: str = names.PATH_KEPT_STATE
    #: The Pod has the device that carries vsock.
    vhost_vsock: bool = False
    #: Where those listen that share directories with the guest.
    share_sockets: str = names.PATH_SHARE_SOCKETS
    #: The CPUs that the Pod has to itself; only looked at where the VMI asks for such.
    host_cpus: tuple[HostCpu, ...] = ()
    #: Variables in which device plugins say which devices of the node the Pod was given.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Where drivers of resource claims say the same.
    device_metadata: Path = Path(names.PATH_DEVICE_METADATA)
    #: Where the Pod says which device it got for which network.
    network_info: Path = Path(names.PATH_POD_INFO, names.FILE_NETWORK_INFO)
    #: What the cluster's configuration switches off for all machines.
    serial_log: bool = True
    free_page_reporting: bool = True
    #: Whether libvirt chooses the firmware's files, by what the machine needs of it.
    libvirt_chooses_firmware: bool = False
    #: Where the kernel tells near which memory cell a device of the node is; None: they sit anywhere.
    sys: Path | None = None
    #: Of the node, by the API's name.
    node_architecture: str = "amd64"
    #: Whether a machine of another architecture than the node's may run here.
    any_architecture: bool = False

    @property
    def architecture(self) -> Architecture:
        return ARCHITECTURES[self.vmi.spec.architecture]

    @property
    def foreign(self) -> bool:
        """Whether the machine is of another architecture than its node."""
        return self.architecture is not ARCHITECTURES.get(self.node_architecture)

    @property
    def virtio_model(self) -> str:
        """Without the old protocol, unless the VMI asks for it."""
        if self.architecture.virtio:
            return self.architecture.virtio
        transitional = self.vmi.spec.domain.devices.use_virtio_transitional
        return "virtio-transitional" if transitional else "virtio-non-transitional"

    @property
    def cpu(self) -> CPU:
        return self.vmi.spec.domain.cpu or CPU()

    @property
    def efi(self) -> bool:
        firmware = self.vmi.spec.domain.firmware
        return bool(firmware and firmware.bootloader and firmware.bootloader.efi)


def enabled(state: object) -> bool:
    """A feature that is named counts as on unless it says otherwise."""
    return state is not None and getattr(state, "enabled", None) is not False
