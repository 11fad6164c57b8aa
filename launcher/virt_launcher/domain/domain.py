"""The whole domain: what `virsh dumpxml` shows, as far as we write it or read it back."""

# ruff: noqa: RUF009 - `at` is a field specifier like dataclasses.field
from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from virt_launcher.domain.codec import DomainXmlError, at, from_element, many, to_element
from virt_launcher.domain.devices import (
    Channel,
    Controller,
    Graphics,
    Input,
    Interface,
    MemBalloon,
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
    MemoryBacking,
    Os,
    QemuArgument,
    QemuCapability,
    SysInfo,
    VCpu,
    VCpuCount,
)


@dataclass(kw_only=True, slots=True)
class Devices:
    disks: list[Disk] = many("disk")
    controllers: list[Controller] = many("controller")
    interfaces: list[Interface] = many("interface")
    serials: list[Serial] = many("serial")
    channels: list[Channel] = many("channel")
    tpms: list[Tpm] = many("tpm")
    inputs: list[Input] = many("input")
    graphics: list[Graphics] = many("graphics")
    sounds: list[Sound] = many("sound")
    videos: list[Video] = many("video")
    redirdevs: list[RedirDev] = many("redirdev")
    watchdogs: list[Watchdog] = many("watchdog")
    memballoon: MemBalloon | None = at("memballoon")
    rngs: list[Rng] = many("rng")
    panics: list[Panic] = many("panic")
    vsock: Vsock | None = at("vsock")


@dataclass(kw_only=True, slots=True)
class Domain:
    type: str | None = at("@type")
    name: str | None = at("name")
    uuid: str | None = at("uuid")
    vmi_uid: str | None = at("metadata/virtpod:vmi/@uid")
    memory: Amount | None = at("memory")
    memory_backing: MemoryBacking | None = at("memoryBacking")
    vcpu: VCpuCount | None = at("vcpu")
    vcpus: list[VCpu] = many("vcpus/vcpu")
    iothreads: int | None = at("iothreads")
    cpu_tune: CpuTune | None = at("cputune")
    sysinfo: SysInfo | None = at("sysinfo")
    os: Os = field(default_factory=Os, metadata=at("os").metadata)
    features: Features | None = at("features")
    cpu: Cpu | None = at("cpu")
    clock: Clock | None = at("clock")
    on_reboot: str | None = at("on_reboot")
    devices: Devices = field(default_factory=Devices, metadata=at("devices").metadata)
    arguments: list[QemuArgument] = many("qemu:commandline/qemu:arg")
    without_capabilities: list[QemuCapability] = many("qemu:capabilities/qemu:del")


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
