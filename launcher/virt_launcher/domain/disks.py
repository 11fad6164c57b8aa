"""The disks of a domain."""

from __future__ import annotations

from virt_core.runtime.record import record
from virt_launcher.domain.codec import ON_OFF, at, flag, many
from virt_launcher.domain.devices import Address


@record(kw_only=True, slots=True)
class IOThreadRef:
    id: int | None = at("@id")


@record(kw_only=True, slots=True)
class BackingStore:
    type: str | None = at("@type")
    format: str | None = at("format/@type")
    source_file: str | None = at("source/@file")
    source_dev: str | None = at("source/@dev")


@record(kw_only=True, slots=True)
class Reservations:
    """Who carries out what the guest asks of a SCSI disk about reservations: a helper that is not libvirt's own."""

    managed: bool | None = at("@managed")
    type: str | None = at("source/@type")
    path: str | None = at("source/@path")
    mode: str | None = at("source/@mode")


@record(kw_only=True, slots=True)
class Disk:
    type: str | None = at("@type")
    device: str | None = at("@device")
    model: str | None = at("@model")
    driver_name: str | None = at("driver/@name")
    driver_type: str | None = at("driver/@type")
    cache: str | None = at("driver/@cache")
    error_policy: str | None = at("driver/@error_policy")
    io: str | None = at("driver/@io")
    iothread: int | None = at("driver/@iothread")
    iothreads: list[IOThreadRef] = many("driver/iothreads/iothread")
    queues: int | None = at("driver/@queues")
    discard: str | None = at("driver/@discard")
    iommu: bool | None = at("driver/@iommu", words=ON_OFF)
    source_file: str | None = at("source/@file")
    source_dev: str | None = at("source/@dev")
    reservations: Reservations | None = at("source/reservations")
    backing_store: BackingStore | None = at("backingStore")
    target: str | None = at("target/@dev")
    bus: str | None = at("target/@bus")
    tray: str | None = at("target/@tray")
    logical_block_size: int | None = at("blockio/@logical_block_size")
    physical_block_size: int | None = at("blockio/@physical_block_size")
    discard_granularity: int | None = at("blockio/@discard_granularity")
    readonly: bool = flag("readonly")
    shareable: bool = flag("shareable")
    serial: str | None = at("serial")
    boot_order: int | None = at("boot/@order")
    alias: str | None = at("alias/@name")
    address: Address | None = at("address")
