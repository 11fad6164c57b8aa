"""The parts of a domain that are no devices: memory, processor, firmware, features, clock."""

from __future__ import annotations

from virt_core.runtime.record import record
from virt_launcher.domain.codec import ON_OFF, at, flag, many


@record(kw_only=True, slots=True)
class Amount:
    """A size with its unit; we always write bytes (`b`), libvirt answers in KiB."""

    unit: str | None = at("@unit")
    value: int | None = at("")


@record(kw_only=True, slots=True)
class MaxMemory:
    """What the guest's memory can grow to."""

    slots: int | None = at("@slots")
    unit: str | None = at("@unit")
    value: int | None = at("")


@record(kw_only=True, slots=True)
class HugePage:
    size: int | None = at("@size")
    unit: str | None = at("@unit")
    #: Of which cells of the guest; all without it.
    cells: str | None = at("@nodeset")


@record(kw_only=True, slots=True)
class MemoryBacking:
    pages: list[HugePage] = many("hugepages/page")
    #: Equal pages of several guests are not merged into one.
    unmerged: bool = flag("nosharepages")
    source: str | None = at("source/@type")
    access: str | None = at("access/@mode")
    allocation: str | None = at("allocation/@mode")


@record(kw_only=True, slots=True)
class VCpuCount:
    placement: str | None = at("@placement")
    current: int | None = at("@current")
    value: int | None = at("")


@record(kw_only=True, slots=True)
class VCpu:
    id: int | None = at("@id")
    enabled: bool | None = at("@enabled")
    hotpluggable: bool | None = at("@hotpluggable")


@record(kw_only=True, slots=True)
class VCpuPin:
    """On which CPU of the node a vCPU runs."""

    vcpu: int | None = at("@vcpu")
    cpuset: str | None = at("@cpuset")


@record(kw_only=True, slots=True)
class IOThreadPin:
    iothread: int | None = at("@iothread")
    cpuset: str | None = at("@cpuset")


@record(kw_only=True, slots=True)
class CpuTune:
    vcpu_pins: list[VCpuPin] = many("vcpupin")
    #: Where the threads of QEMU run that are neither vCPUs nor IO threads.
    emulator_cpuset: str | None = at("emulatorpin/@cpuset")
    io_thread_pins: list[IOThreadPin] = many("iothreadpin")


@record(kw_only=True, slots=True)
class MemNode:
    """From which cells of the node the memory of one cell of the guest comes."""

    cell: int | None = at("@cellid")
    mode: str | None = at("@mode")
    nodeset: str | None = at("@nodeset")


@record(kw_only=True, slots=True)
class NumaTune:
    mode: str | None = at("memory/@mode")
    nodeset: str | None = at("memory/@nodeset")
    nodes: list[MemNode] = many("memnode")


@record(kw_only=True, slots=True)
class Entry:
    """One SMBIOS value."""

    name: str | None = at("@name")
    value: str | None = at("")


@record(kw_only=True, slots=True)
class SysInfo:
    type: str | None = at("@type")
    system: list[Entry] = many("system/entry")
    chassis: list[Entry] = many("chassis/entry")


@record(kw_only=True, slots=True)
class AcpiTable:
    type: str | None = at("@type")
    path: str | None = at("")


@record(kw_only=True, slots=True)
class FirmwareFeature:
    """What the firmware must have or must not have, where libvirt chooses it."""

    enabled: bool | None = at("@enabled")
    name: str | None = at("@name")


@record(kw_only=True, slots=True)
class Os:
    firmware: str | None = at("@firmware")
    arch: str | None = at("type/@arch")
    machine: str | None = at("type/@machine")
    type: str | None = at("type")
    firmware_features: list[FirmwareFeature] = many("firmware/feature")
    loader_readonly: bool | None = at("loader/@readonly")
    loader_secure: bool | None = at("loader/@secure")
    loader_type: str | None = at("loader/@type")
    loader: str | None = at("loader")
    nvram_template: str | None = at("nvram/@template")
    nvram: str | None = at("nvram")
    kernel: str | None = at("kernel")
    initrd: str | None = at("initrd")
    cmdline: str | None = at("cmdline")
    acpi_tables: list[AcpiTable] = many("acpi/table")
    bootmenu: bool | None = at("bootmenu/@enable")
    bootmenu_timeout: int | None = at("bootmenu/@timeout")
    smbios: str | None = at("smbios/@mode")
    bios_useserial: bool | None = at("bios/@useserial")


@record(kw_only=True, slots=True)
class HyperV:
    mode: str | None = at("@mode")
    relaxed: bool | None = at("relaxed/@state", words=ON_OFF)
    vapic: bool | None = at("vapic/@state", words=ON_OFF)
    spinlocks: bool | None = at("spinlocks/@state", words=ON_OFF)
    spinlocks_retries: int | None = at("spinlocks/@retries")
    vpindex: bool | None = at("vpindex/@state", words=ON_OFF)
    runtime: bool | None = at("runtime/@state", words=ON_OFF)
    synic: bool | None = at("synic/@state", words=ON_OFF)
    stimer: bool | None = at("stimer/@state", words=ON_OFF)
    stimer_direct: bool | None = at("stimer/direct/@state", words=ON_OFF)
    reset: bool | None = at("reset/@state", words=ON_OFF)
    vendor_id: bool | None = at("vendor_id/@state", words=ON_OFF)
    vendor_id_value: str | None = at("vendor_id/@value")
    frequencies: bool | None = at("frequencies/@state", words=ON_OFF)
    reenlightenment: bool | None = at("reenlightenment/@state", words=ON_OFF)
    tlbflush: bool | None = at("tlbflush/@state", words=ON_OFF)
    tlbflush_direct: bool | None = at("tlbflush/direct/@state", words=ON_OFF)
    tlbflush_extended: bool | None = at("tlbflush/extended/@state", words=ON_OFF)
    ipi: bool | None = at("ipi/@state", words=ON_OFF)
    evmcs: bool | None = at("evmcs/@state", words=ON_OFF)


@record(kw_only=True, slots=True)
class Features:
    acpi: bool = flag("acpi")
    apic: bool = flag("apic")
    apic_eoi: bool | None = at("apic/@eoi", words=ON_OFF)
    hyperv: HyperV | None = at("hyperv")
    kvm_hidden: bool | None = at("kvm/hidden/@state", words=ON_OFF)
    kvm_hint_dedicated: bool | None = at("kvm/hint-dedicated/@state", words=ON_OFF)
    pmu: bool | None = at("pmu/@state", words=ON_OFF)
    pvspinlock: bool | None = at("pvspinlock/@state", words=ON_OFF)
    smm: bool | None = at("smm/@state", words=ON_OFF)
    vmport: bool | None = at("vmport/@state", words=ON_OFF)


@record(kw_only=True, slots=True)
class CpuFeature:
    policy: str | None = at("@policy")
    name: str | None = at("@name")


@record(kw_only=True, slots=True)
class Cell:
    """Processors and memory of the guest that are close to each other."""

    id: int | None = at("@id")
    cpus: str | None = at("@cpus")
    memory: int | None = at("@memory")
    unit: str | None = at("@unit")


@record(kw_only=True, slots=True)
class Cpu:
    mode: str | None = at("@mode")
    match: str | None = at("@match")
    check: str | None = at("@check")
    model: str | None = at("model")
    sockets: int | None = at("topology/@sockets")
    cores: int | None = at("topology/@cores")
    threads: int | None = at("topology/@threads")
    features: list[CpuFeature] = many("feature")
    cells: list[Cell] = many("numa/cell")


@record(kw_only=True, slots=True)
class Timer:
    name: str | None = at("@name")
    present: bool | None = at("@present")
    tick_policy: str | None = at("@tickpolicy")
    track: str | None = at("@track")
    frequency: int | None = at("@frequency")


@record(kw_only=True, slots=True)
class Clock:
    offset: str | None = at("@offset")
    adjustment: str | None = at("@adjustment")
    basis: str | None = at("@basis")
    timezone: str | None = at("@timezone")
    timers: list[Timer] = many("timer")


@record(kw_only=True, slots=True)
class LaunchSecurity:
    """How the guest's memory is hidden from the node."""

    type: str | None = at("@type")
    policy: str | None = at("policy")
    dh_cert: str | None = at("dhCert")
    session: str | None = at("session")
    quote_socket: str | None = at("quoteGenerationService/@path")


@record(kw_only=True, slots=True)
class QemuArgument:
    """A word of QEMU's command line that libvirt passes on."""

    value: str | None = at("@value")


@record(kw_only=True, slots=True)
class QemuProperty:
    """A property of a device, in place of the one that libvirt gives it."""

    name: str | None = at("@name")
    type: str | None = at("@type")
    value: str | None = at("@value")


@record(kw_only=True, slots=True)
class QemuDevice:
    """What QEMU is told otherwise of a device than libvirt would say."""

    alias: str | None = at("@alias")
    properties: list[QemuProperty] = many("qemu:frontend/qemu:property")


@record(kw_only=True, slots=True)
class QemuCapability:
    """Something that libvirt found QEMU to be able to do."""

    name: str | None = at("@capability")
