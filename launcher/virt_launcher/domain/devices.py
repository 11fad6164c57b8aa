"""The devices of a domain, disks aside."""

from __future__ import annotations

from virt_core.runtime.record import record
from virt_launcher.domain.codec import ON_OFF, at
from virt_launcher.domain.machine import Amount


@record(kw_only=True, slots=True)
class Address:
    """Where a device sits: a PCI function, or a unit of a controller (`type` drive)."""

    type: str | None = at("@type")
    domain: str | None = at("@domain")
    controller: int | None = at("@controller")
    bus: str | None = at("@bus")
    slot: str | None = at("@slot")
    function: str | None = at("@function")
    target: int | None = at("@target")
    unit: int | None = at("@unit")
    multifunction: bool | None = at("@multifunction", words=ON_OFF)


@record(kw_only=True, slots=True)
class Controller:
    type: str | None = at("@type")
    index: int | None = at("@index")
    model: str | None = at("@model")
    iothread: int | None = at("driver/@iothread")
    queues: int | None = at("driver/@queues")
    hole64: Amount | None = at("pcihole64")
    iommu: bool | None = at("driver/@iommu", words=ON_OFF)
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class Interface:
    type: str | None = at("@type")
    mac: str | None = at("mac/@address")
    target: str | None = at("target/@dev")
    target_managed: bool | None = at("target/@managed")
    model: str | None = at("model/@type")
    queues: int | None = at("driver/@queues")
    mtu: int | None = at("mtu/@size")
    link: str | None = at("link/@state")
    boot_order: int | None = at("boot/@order")
    alias: str | None = at("alias/@name")
    acpi_index: int | None = at("acpi/@index")
    rom_enabled: bool | None = at("rom/@enabled")
    iommu: bool | None = at("driver/@iommu", words=ON_OFF)
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class MemoryDevice:
    """Memory that a running guest takes and gives back: of `size` bytes it shall have those that are requested."""

    model: str | None = at("@model")
    size: Amount | None = at("target/size")
    node: int | None = at("target/node")
    block: Amount | None = at("target/block")
    requested: Amount | None = at("target/requested")
    #: What the guest has taken; libvirt's to say.
    current: Amount | None = at("target/current")
    #: Where the guest sees it, likewise; newer libvirts want to hear it again with each change.
    base: str | None = at("target/address/@base")
    alias: str | None = at("alias/@name")
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class Filesystem:
    """A directory that the guest mounts by its tag, which is `target`."""

    type: str | None = at("@type")
    access_mode: str | None = at("@accessmode")
    driver: str | None = at("driver/@type")
    queue: int | None = at("driver/@queue")
    socket: str | None = at("source/@socket")
    target: str | None = at("target/@dir")
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class Serial:
    """A serial port: a unix socket with an optional log."""

    type: str | None = at("@type")
    source_mode: str | None = at("source/@mode")
    source_path: str | None = at("source/@path")
    log_file: str | None = at("log/@file")
    log_append: bool | None = at("log/@append", words=ON_OFF)
    target_type: str | None = at("target/@type")
    target_port: int | None = at("target/@port")


@record(kw_only=True, slots=True)
class Channel:
    type: str | None = at("@type")
    source_mode: str | None = at("source/@mode")
    source_path: str | None = at("source/@path")
    target_type: str | None = at("target/@type")
    target_name: str | None = at("target/@name")
    target_state: str | None = at("target/@state")


@record(kw_only=True, slots=True)
class HostAddress:
    """Which device of the node: a PCI function, a mediated device, or a place on a USB bus."""

    domain: str | None = at("@domain")
    bus: str | None = at("@bus")
    slot: str | None = at("@slot")
    function: str | None = at("@function")
    uuid: str | None = at("@uuid")
    device: str | None = at("@device")


@record(kw_only=True, slots=True)
class HostDev:
    mode: str | None = at("@mode")
    type: str | None = at("@type")
    managed: bool | None = at("@managed")
    model: str | None = at("@model")
    display: bool | None = at("@display", words=ON_OFF)
    ramfb: bool | None = at("@ramfb", words=ON_OFF)
    source: HostAddress | None = at("source/address")
    alias: str | None = at("alias/@name")
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class RedirDev:
    bus: str | None = at("@bus")
    type: str | None = at("@type")
    source_mode: str | None = at("source/@mode")
    source_path: str | None = at("source/@path")


@record(kw_only=True, slots=True)
class Listen:
    type: str | None = at("@type")
    socket: str | None = at("@socket")


@record(kw_only=True, slots=True)
class Graphics:
    type: str | None = at("@type")
    listen: Listen | None = at("listen")


@record(kw_only=True, slots=True)
class Video:
    type: str | None = at("model/@type")
    vram: int | None = at("model/@vram")
    heads: int | None = at("model/@heads")
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class Input:
    type: str | None = at("@type")
    bus: str | None = at("@bus")
    model: str | None = at("@model")
    alias: str | None = at("alias/@name")
    iommu: bool | None = at("driver/@iommu", words=ON_OFF)
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class Rng:
    model: str | None = at("@model")
    backend_model: str | None = at("backend/@model")
    backend: str | None = at("backend")
    iommu: bool | None = at("driver/@iommu", words=ON_OFF)
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class MemBalloon:
    model: str | None = at("@model")
    free_page_reporting: bool | None = at("@freePageReporting", words=ON_OFF)
    stats_period: int | None = at("stats/@period")
    iommu: bool | None = at("driver/@iommu", words=ON_OFF)
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class Watchdog:
    model: str | None = at("@model")
    action: str | None = at("@action")
    alias: str | None = at("alias/@name")
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class Sound:
    model: str | None = at("@model")
    alias: str | None = at("alias/@name")
    address: Address | None = at("address")


@record(kw_only=True, slots=True)
class Tpm:
    model: str | None = at("@model")
    backend_type: str | None = at("backend/@type")
    backend_version: str | None = at("backend/@version")
    persistent_state: bool | None = at("backend/@persistent_state")


@record(kw_only=True, slots=True)
class Panic:
    model: str | None = at("@model")


@record(kw_only=True, slots=True)
class Vsock:
    model: str | None = at("@model")
    cid_auto: bool | None = at("cid/@auto")
    cid: int | None = at("cid/@address")
    iommu: bool | None = at("driver/@iommu", words=ON_OFF)
    address: Address | None = at("address")
