"""The whole domain: what `virsh dumpxml` shows, as far as we write it or read it back."""

from __future__ import annotations

from dataclasses import field
from xml.etree import ElementTree as ET

from virt_core.runtime.record import record
from virt_launcher.domain.codec import DomainXmlError, at, from_element, many, to_element
from virt_launcher.domain.devices import (
    Channel,
    Controller,
    Filesystem,
    Graphics,
    HostDev,
    Input,
    Interface,
    MemBalloon,
    MemoryDevice,
    Panic,
    RedirDev,
    Rng,
    Serial,
    Sound,
    Tpm,
    Video,
    Vsock,
    Watchdog,
)
from virt_launcher.domain.disks import Disk
from virt_launcher.domain.machine import (
    Amount,
    Clock,
    Cpu,
    CpuTune,
    Features,
    LaunchSecurity,
    MaxMemory,
    MemoryBacking,
    NumaTune,
    Os,
    QemuArgument,
    QemuCapability,
    QemuDevice,
    SysInfo,
    VCpu,
    VCpuCount,
)


@record(kw_only=True, slots=True)
class Devices:
    emulator: str | None = at("emulator")
    disks: list[Disk] = many("disk")
    controllers: list[Controller] = many("controller")
    filesystems: list[Filesystem] = many("filesystem")
    interfaces: list[Interface] = many("interface")
    serials: list[Serial] = many("serial")
    channels: list[Channel] = many("channel")
    tpms: list[Tpm] = many("tpm")
    inputs: list[Input] = many("input")
    graphics: list[Graphics] = many("graphics")
    sounds: list[Sound] = many("sound")
    videos: list[Video] = many("video")
    hostdevs: list[HostDev] = many("hostdev")
    redirdevs: list[RedirDev] = many("redirdev")
    watchdogs: list[Watchdog] = many("watchdog")
    memballoon: MemBalloon | None = at("memballoon")
    rngs: list[Rng] = many("rng")
    panics: list[Panic] = many("panic")
    vsock: Vsock | None = at("vsock")
    memories: list[MemoryDevice] = many("memory")


@record(kw_only=True, slots=True)
class Domain:
    type: str | None = at("@type")
    name: str | None = at("name")
    uuid: str | None = at("uuid")
    vmi_uid: str | None = at("metadata/virtpod:vmi/@uid")
    max_memory: MaxMemory | None = at("maxMemory")
    memory: Amount | None = at("memory")
    memory_backing: MemoryBacking | None = at("memoryBacking")
    vcpu: VCpuCount | None = at("vcpu")
    vcpus: list[VCpu] = many("vcpus/vcpu")
    iothreads: int | None = at("iothreads")
    cpu_tune: CpuTune | None = at("cputune")
    numa_tune: NumaTune | None = at("numatune")
    sysinfo: SysInfo | None = at("sysinfo")
    os: Os = field(default_factory=Os, metadata=at("os").metadata)
    features: Features | None = at("features")
    cpu: Cpu | None = at("cpu")
    clock: Clock | None = at("clock")
    on_reboot: str | None = at("on_reboot")
    devices: Devices = field(default_factory=Devices, metadata=at("devices").metadata)
    launch_security: LaunchSecurity | None = at("launchSecurity")
    arguments: list[QemuArgument] = many("qemu:commandline/qemu:arg")
    without_capabilities: list[QemuCapability] = many("qemu:capabilities/qemu:del")
    overrides: list[QemuDevice] = many("qemu:override/qemu:device")


def to_xml(domain: Domain) -> str:
    element = to_element(domain, "domain")
    ET.indent(element)
    return ET.tostring(element, encoding="unicode") + "\n"


def from_xml(text: str) -> Domain:
    """Reads what libvirt gives us. Never feed it a document from a guest: entities are libvirt's business, not ours."""
    try:
        element = ET.fromstring(text)  # noqa: S314 - the text comes from our own libvirt daemon
    except ET.ParseError as error:
        raise DomainXmlError(f"libvirt's answer is not XML: {error}") from error
    if element.tag != "domain":
        raise DomainXmlError(f"expected <domain>, got <{element.tag}>")
    return from_element(element, Domain)
