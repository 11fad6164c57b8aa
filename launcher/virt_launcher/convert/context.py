"""What the configurators know besides the VMI itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from virt_core.apis.domain import CPU
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.disks.sources import DiskSource, FirmwareFiles, KernelFiles

if TYPE_CHECKING:
    from virt_launcher.convert.cpuplan import HostCpu

ARCHITECTURES = {"amd64": "x86_64", "": "x86_64"}


@dataclass(frozen=True, slots=True)
class Attachment:
    """The network of one interface as virt-netsetup left it."""

    tap: str
    mac: str = ""
    mtu: int = 0
    queues: int = 0


@dataclass(frozen=True, slots=True)
class Smbios:
    """How the machine presents itself. The cluster's configuration may say otherwise."""

    manufacturer: str = "Virtpod"
    product: str = "Virtual Machine"
    version: str = ""
    sku: str = ""
    family: str = "Virtpod"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    #: The Pod has the device that carries vsock.
    vhost_vsock: bool = False
    #: The CPUs that the Pod has to itself; only looked at where the VMI asks for such.
    host_cpus: tuple[HostCpu, ...] = ()

    @property
    def virtio_model(self) -> str:
        """Without the old protocol, unless the VMI asks for it."""
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
