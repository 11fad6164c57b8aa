"""What differs from one architecture to the next: one row each."""

from __future__ import annotations

from virt_core.runtime.record import record


@record(frozen=True, slots=True)
class Architecture:
    #: As libvirt and QEMU call it.
    name: str
    machine: str
    #: The processor of a machine that names none.
    cpu_model: str
    disk_bus: str
    #: What a screen can be, the usual one first.
    videos: tuple[str, ...]
    #: Devices that a screen is useless without, as type and bus.
    inputs: tuple[tuple[str, str], ...]
    serial: str
    watchdog: str
    #: The usual one first.
    panics: tuple[str, ...]
    #: How the machine types begin whose devices sit behind ports of a PCI Express root complex.
    with_ports: tuple[str, ...] = ()
    #: Whether it is a PC: with VMware's port, ACPI, processor features by Intel's names.
    pc: bool = False
    acpi: bool = True
    smbios: bool = True
    #: Whether USB is there although nothing asks for it.
    usb: bool = False
    #: The model of every virtio device where there is but one; else the manifest chooses.
    virtio: str = ""


AMD64 = Architecture(
    name="x86_64",
    machine="q35",
    cpu_model="host-model",
    disk_bus="sata",
    videos=("vga", "cirrus", "virtio", "ramfb", "bochs"),
    inputs=(),
    serial="isa-serial",
    watchdog="i6300esb",
    panics=("isa", "hyperv", "pvpanic"),
    with_ports=("q35", "pc-q35"),
    pc=True,
)
ARM64 = Architecture(
    name="aarch64",
    machine="virt",
    cpu_model="host-passthrough",
    disk_bus="virtio",
    videos=("virtio", "ramfb"),
    inputs=(("tablet", "usb"), ("keyboard", "usb")),
    serial="system-serial",
    watchdog="",
    panics=("pvpanic",),
    with_ports=("virt",),
    usb=True,
)
S390X = Architecture(
    name="s390x",
    machine="s390-ccw-virtio",
    cpu_model="host-model",
    disk_bus="virtio",
    videos=("virtio",),
    inputs=(("keyboard", "virtio"),),
    serial="sclp-serial",
    watchdog="diag288",
    panics=(),
    acpi=False,
    smbios=False,
    virtio="virtio",
)

#: By the name in the API; "" is from before there was a choice.
ARCHITECTURES = {"amd64": AMD64, "": AMD64, "arm64": ARM64, "s390x": S390X}
#: By the name that the kernel gives the machine.
OF_KERNEL = {row.name: name for name, row in ARCHITECTURES.items() if name}
