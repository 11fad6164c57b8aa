"""libvirt as a library: its event loop, opening a connection, and what it says about this host."""

from __future__ import annotations

import threading
import time
from typing import Any
from xml.etree import ElementTree

import libvirt

from virt_core.runtime.logs import get_logger
from virt_core.runtime.record import record
from virt_launcher.errors import LauncherError, UnavailableError

log = get_logger(__name__)

CONNECT_DEADLINE_S = 15.0
_CONNECT_RETRY_S = 0.005


def register_event_loop() -> None:
    """Must come before the first connection."""
    libvirt.registerErrorHandler(_ignore_error, None)
    libvirt.virEventRegisterDefaultImpl()


def run_event_loop(stop: threading.Event) -> None:
    """The body of the event thread. A timer keeps the loop from sleeping for ever, so that a stop is seen."""
    timer = libvirt.virEventAddTimeout(500, lambda *_: None, None)
    try:
        while not stop.is_set():
            libvirt.virEventRunDefaultImpl()
    finally:
        libvirt.virEventRemoveTimeout(timer)


def wake_event_loop() -> None:
    """Lets the event thread see a stop."""
    libvirt.virEventAddTimeout(0, _forget_timer, None)


def _forget_timer(timer: int, _opaque: object) -> None:
    libvirt.virEventRemoveTimeout(timer)


def _ignore_error(_context: object, _error: object) -> None:
    """libvirt prints every error to standard error unless told otherwise; we raise and log them ourselves."""


def open_connection(uri: str, deadline_s: float, stop: threading.Event | None = None) -> Any:
    end = time.monotonic() + deadline_s
    while True:
        try:
            return libvirt.open(uri)
        except libvirt.libvirtError as error:
            if time.monotonic() >= end or (stop is not None and stop.is_set()):
                raise UnavailableError(f"libvirt does not answer: {error.get_error_message()}") from error
            time.sleep(_CONNECT_RETRY_S)


@record(frozen=True, slots=True)
class HostAnswers:
    capabilities: str
    domain_capabilities: str
    qemu: str
    libvirt: str
    #: The host model of the CPU with every feature by its name; nothing where libvirt cannot tell.
    features: str = ""


def ask_host(uri: str, virt_type: str) -> HostAnswers:
    """What libvirt says about this host; makes it probe every emulator. For the node probe."""
    libvirt.registerErrorHandler(_ignore_error, None)
    connection = open_connection(uri, CONNECT_DEADLINE_S)
    try:
        domain = connection.getDomainCapabilities(None, None, "q35", virt_type, 0)
        return HostAnswers(
            connection.getCapabilities(),
            domain,
            _version(connection.getVersion()),
            _version(connection.getLibVersion()),
            _features(connection, domain, virt_type),
        )
    except libvirt.libvirtError as error:
        raise LauncherError(error.get_error_message()) from error
    finally:
        connection.close()


def _features(connection: Any, domain_capabilities: str, virt_type: str) -> str:
    """A model's name implies most of its features; written out, they are what a scheduler can compare."""
    root = ElementTree.fromstring(domain_capabilities)  # noqa: S314 - libvirt's own words
    model = root.find("./cpu/mode[@name='host-model'][@supported='yes']")
    if model is None:
        return ""
    cpu = ElementTree.Element("cpu")
    cpu.extend(model)
    arch, machine = root.findtext("arch"), root.findtext("machine")
    flags = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
    try:
        wish = [ElementTree.tostring(cpu, encoding="unicode")]
        return str(connection.baselineHypervisorCPU(None, arch, machine, virt_type, wish, flags))
    except libvirt.libvirtError as error:
        log.info("libvirt does not write out the features of the CPU", error=error.get_error_message())
        return ""


def _version(number: int) -> str:
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
