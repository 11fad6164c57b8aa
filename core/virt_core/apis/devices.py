"""The devices of a VMI: disks and all the rest that hangs on a machine's buses."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import SHORT_LIST, Struct, Uint
from virt_core.apis.features import FeatureState
from virt_core.apis.interfaces import (
    DeprecatedInterfaceMacvtap,
    DeprecatedInterfacePasst,
    DeprecatedInterfaceSlirp,
    DHCPOptions,
    DHCPPrivateOptions,
    Interface,
    InterfaceBridge,
    InterfaceMasquerade,
    InterfacePasstBinding,
    InterfaceSRIOV,
    PluginBinding,
    Port,
    PortRange,
)

__all__ = [
    "GPU",
    "BlockSize",
    "CDRomTarget",
    "ClientPassthroughDevices",
    "CustomBlockSize",
    "DHCPOptions",
    "DHCPPrivateOptions",
    "DeprecatedInterfaceMacvtap",
    "DeprecatedInterfacePasst",
    "DeprecatedInterfaceSlirp",
    "Devices",
    "Diag288Watchdog",
    "Disk",
    "DiskTarget",
    "DownwardMetrics",
    "Filesystem",
    "FilesystemVirtiofs",
    "HostDevice",
    "I6300ESBWatchdog",
    "Input",
    "Interface",
    "InterfaceBridge",
    "InterfaceMasquerade",
    "InterfacePasstBinding",
    "InterfaceSRIOV",
    "LunTarget",
    "PanicDevice",
    "PluginBinding",
    "Port",
    "PortRange",
    "Rng",
    "SoundDevice",
    "TPMDevice",
    "VGPUDisplayOptions",
    "VGPUOptions",
    "VideoDevice",
    "Watchdog",
]


class DiskTarget(Struct):
    """A plain disk."""

    bus: str = ""  #: virtio, sata, scsi or usb.
    read_only: bool = field(default=False, name="readonly")  #: Whether the guest may not write.
    pci_address: str = ""  #: The PCI address on the virtio bus.


class LunTarget(Struct):
    """A disk that takes SCSI commands as they are."""

    bus: str = ""  #: scsi.
    read_only: bool = field(default=False, name="readonly")  #: Whether the guest may not write.
    reservation: bool = False  #: Whether persistent reservations are passed on.


class CDRomTarget(Struct):
    """A CD-ROM drive."""

    bus: str = ""  #: sata, scsi or usb.
    read_only: bool | None = field(default=None, name="readonly")  #: Whether the guest may not write; true by default.
    tray: str = ""  #: open or closed (default).


class CustomBlockSize(Struct):
    """Block sizes in bytes."""

    logical: Uint = 0  #: The logical block size.
    physical: Uint = 0  #: The physical block size.
    discard_granularity: Uint | None = None  #: The unit of discards.


class BlockSize(Struct):
    """The block sizes that the guest sees. At most one."""

    custom: CustomBlockSize | None = None  #: Fixed sizes.
    match_volume: FeatureState | None = None  #: Those of the backing volume.


class Disk(Struct):
    """A disk of the guest, of the volume with the same name. At most one of disk, lun, cdrom."""

    name: str  #: The name of the disk and of its volume.
    disk: DiskTarget | None = None  #: A plain disk.
    lun: LunTarget | None = None  #: A SCSI pass-through disk.
    cdrom: CDRomTarget | None = None  #: A CD-ROM drive.
    boot_order: Uint | None = None  #: The place in the boot order, from 1.
    serial: str = ""  #: The serial number that the guest sees.
    dedicated_io_thread: bool | None = field(default=None, name="dedicatedIOThread")  #: Whether it has an IO thread.
    cache: str = ""  #: none, writethrough or writeback.
    io: str = ""  #: native or threads.
    tag: str = ""  #: A tag for the guest's metadata.
    block_size: BlockSize | None = None  #: The block sizes that the guest sees.
    shareable: bool | None = None  #: Whether several machines may write to it.
    error_policy: str | None = None  #: stop (default), ignore, report or enospace.
    changed_block_tracking: bool | None = None  #: Whether changed blocks are tracked for backups.


class FilesystemVirtiofs(Struct):
    """Virtiofs."""


class Filesystem(Struct):
    """A directory tree shared with the guest, of the volume with the same name."""

    name: str  #: The name of the filesystem, of its volume and of its tag in the guest.
    virtiofs: FilesystemVirtiofs  #: By virtiofs.


class Input(Struct):
    """A pointing device."""

    name: str  #: Its name.
    type: str  #: tablet.
    bus: str = ""  #: usb or virtio.


class I6300ESBWatchdog(Struct):
    """An i6300esb watchdog."""

    action: str = ""  #: poweroff, reset (default) or shutdown.


class Diag288Watchdog(Struct):
    """A diag288 watchdog (s390x)."""

    action: str = ""  #: poweroff, reset (default) or shutdown.


class Watchdog(Struct):
    """A watchdog: acts when the guest stops feeding it."""

    name: str  #: Its name.
    i6300esb: I6300ESBWatchdog | None = None  #: An i6300esb.
    diag288: Diag288Watchdog | None = None  #: A diag288.


class VGPUDisplayOptions(Struct):
    """The display of a virtual GPU."""

    enabled: bool | None = None  #: Whether it has one; true by default.
    ram_fb: FeatureState | None = field(default=None, name="ramFB")  #: A frame buffer before the driver loads.


class VGPUOptions(Struct):
    """Options of a virtual GPU."""

    display: VGPUDisplayOptions | None = None  #: Its display.


class GPU(Struct):
    """A GPU of the node."""

    name: str  #: Its name.
    device_name: str = ""  #: The resource name of the device plugin.
    claim_name: str | None = None  #: The claim in spec.resourceClaims.
    request_name: str | None = None  #: The request within the claim.
    virtual_gpu_options: VGPUOptions | None = field(default=None, name="virtualGPUOptions")  #: Options of a vGPU.
    tag: str = ""  #: A tag for the guest's metadata.


class HostDevice(Struct):
    """A device of the node."""

    name: str  #: Its name.
    device_name: str = ""  #: The resource name of the device plugin.
    claim_name: str | None = None  #: The claim in spec.resourceClaims.
    request_name: str | None = None  #: The request within the claim.
    tag: str = ""  #: A tag for the guest's metadata.


class Rng(Struct):
    """A source of randomness."""


class DownwardMetrics(Struct):
    """A channel with metrics of the host."""


class ClientPassthroughDevices(Struct):
    """Four slots for USB devices of the user's machine."""


class SoundDevice(Struct):
    """A sound card."""

    name: str  #: Its name.
    model: str = ""  #: ich9 or ac97.


class TPMDevice(Struct):
    """A TPM."""

    enabled: bool | None = None  #: Whether there is one; true by default.
    persistent: bool | None = None  #: Whether its state outlives the VMI.


class VideoDevice(Struct):
    """A video card."""

    type: str = ""  #: The model, such as virtio, vga or bochs.


class PanicDevice(Struct):
    """Tells the host when the guest's kernel panics."""

    model: str | None = None  #: hyperv, isa or pvpanic.


class Devices(Struct):
    """All devices of the machine."""

    use_virtio_transitional: bool | None = None  #: Use virtio devices that also speak the old protocol.
    disable_hotplug: bool = False  #: Leave out what is needed to attach disks later.
    autoattach_pod_interface: bool | None = None  #: Add a NIC on the Pod network if none is given; true by default.
    autoattach_graphics_device: bool | None = None  #: Add a video card; true by default.
    autoattach_serial_console: bool | None = None  #: Add a serial console; true by default.
    log_serial_console: bool | None = None  #: Write the serial console to a log.
    autoattach_mem_balloon: bool | None = None  #: Add a memory balloon; true by default.
    autoattach_input_device: bool | None = None  #: Add a tablet.
    autoattach_vsock: bool | None = field(default=None, name="autoattachVSOCK")  #: Add a vsock.
    block_multi_queue: bool | None = None  #: Give each vCPU a queue of each disk.
    network_interface_multiqueue: bool | None = None  #: Give each vCPU a queue of each NIC.
    disks: Annotated[list[Disk], SHORT_LIST] = []  #: The disks.
    filesystems: list[Filesystem] = []  #: Shared directory trees.
    interfaces: Annotated[list[Interface], SHORT_LIST] = []  #: The NICs.
    inputs: list[Input] = []  #: Pointing devices.
    watchdog: Watchdog | None = None  #: A watchdog.
    gpus: list[GPU] = []  #: GPUs of the node.
    host_devices: list[HostDevice] = []  #: Devices of the node.
    rng: Rng | None = None  #: A source of randomness.
    downward_metrics: DownwardMetrics | None = None  #: A channel with metrics of the host.
    client_passthrough: ClientPassthroughDevices | None = None  #: Slots for USB devices of the user's machine.
    sound: SoundDevice | None = None  #: A sound card.
    tpm: TPMDevice | None = None  #: A TPM.
    video: VideoDevice | None = None  #: The video card.
    panic_devices: list[PanicDevice] = []  #: Panic devices.
