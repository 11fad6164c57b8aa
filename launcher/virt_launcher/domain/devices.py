"""The devices of a domain, disks aside."""

# ruff: noqa: RUF009 - `at` is a field specifier like dataclasses.field
from __future__ import annotations

from dataclasses import dataclass

from virt_launcher.domain.codec import ON_OFF, at
from virt_launcher.domain.machine import Amount


@dataclass(kw_only=True, slots=True)
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


@dataclass(kw_only=True, slots=True)
class Controller:
    type: str | None = at("@type")
    index: int | None = at("@index")
    model: str | None = at("@model")
    iothread: int | None = at("driver/@iothread")
    queues: int | None = at("driver/@queues")
    hole64: Amount | None = at("pcihole64")
    address: Address | None = at("address")


@dataclass(kw_only=True, slots=True)
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
    address: Address | None = at("address")


@dataclass(kw_only=True, slots=True)
class Serial:
    """A serial port: a unix socket with an optional log."""

    type: str | None = at("@type")
    source_mode: str | None = at("source/@mode")
    source_path: str | None = at("source/@path")
    log_file: str | None = at("log/@file")
    log_append: bool | None = at("log/@append", words=ON_OFF)
    target_type: str | None = at("target/@type")
    target_port: int | None = at("target/@port")


@dataclass(kw_only=True, slots=True)
class Channel:
    type: str | None = at("@type")
    source_mode: str | None = at("source/@mode")
    source_path: str | None = at("source/@path")
    target_type: str | None = at("target/@type")
    target_name: str | None = at("target/@name")
    target_state: str | None = at("target/@state")


@dataclass(kw_only=True, slots=True)
class RedirDev:
    bus: str | None = at("@bus")
    type: str | None = at("@type")
    source_mode: str | None = at("source/@mode")
    source_path: str | None = at("source/@path")


@dataclass(kw_only=True, slots=True)
class Listen:
    type: str | None = at("@type")
    socket: str | None = at("@socket")


@dataclass(kw_only=True, slots=True)
class Graphics:
    type: str | None = at("@type")
    listen: Listen | None = at("listen")


@dataclass(kw_only=True, slots=True)
class Video:
    type: str | None = at("model/@type")
    vram: int | None = at("model/@vram")
    heads: int | None = at("model/@heads")


@dataclass(kw_only=True, slots=True)
class Input:
    type: str | None = at("@type")
    bus: str | None = at("@bus")
    model: str | None = at("@model")
    alias: str | None = at("alias/@name")
    address: Address | None = at("address")


@dataclass(kw_only=True, slots=True)
class Rng:
    model: str | None = at("@model")
    backend_model: str | None = at("backend/@model")
    backend: str | None = at("backend")
    address: Address | None = at("address")


@dataclass(kw_only=True, slots=True)
class MemBalloon:
    model: str | None = at("@model")
    free_page_reporting: bool | None = at("@freePageReporting", words=ON_OFF)
    stats_period: int | None = at("stats/@period")
    address: Address | None = at("address")


@dataclass(kw_only=True, slots=True)
class Watchdog:
    model: str | None = at("@model")
    action: str | None = at("@action")
    alias: str | None = at("alias/@name")
    address: Address | None = at("address")


@dataclass(kw_only=True, slots=True)
class Sound:
    model: str | None = at("@model")
    alias: str | None = at("alias/@name")
    address: Address | None = at("address")


@dataclass(kw_only=True, slots=True)
class Tpm:
    model: str | None = at("@model")
    backend_type: str | None = at("backend/@type")
    backend_version: str | None = at("backend/@version")


@dataclass(kw_only=True, slots=True)
class Panic:
    model: str | None = at("@model")


@dataclass(kw_only=True, slots=True)
class Vsock:
    model: str | None = at("@model")
    cid_auto: bool | None = at("cid/@auto")
    cid: int | None = at("cid/@address")
    address: Address | None = at("address")
