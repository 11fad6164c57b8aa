"""The disks of a domain."""

# ruff: noqa: RUF009 - `at` is a field specifier like dataclasses.field
from __future__ import annotations

from dataclasses import dataclass

from virt_launcher.domain.codec import at, flag, many
from virt_launcher.domain.devices import Address


@dataclass(kw_only=True, slots=True)
class IOThreadRef:
    id: int | None = at("@id")


@dataclass(kw_only=True, slots=True)
class BackingStore:
    type: str | None = at("@type")
    format: str | None = at("format/@type")
    source_file: str | None = at("source/@file")
    source_dev: str | None = at("source/@dev")


@dataclass(kw_only=True, slots=True)
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
    source_file: str | None = at("source/@file")
    source_dev: str | None = at("source/@dev")
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
