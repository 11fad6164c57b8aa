"""The door to libvirt's machine. Speaks `ports.Hypervisor` and translates every error at the border.

libvirt's event loop runs in a thread of its own and calls us back there; callbacks only pass a hint on. When the
daemon goes away, calls fail as unavailable and a thread connects again, registers the callbacks anew and says so to
the watchers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import libvirt

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import NoMachineError, UnavailableError
from virt_launcher.hypervisor.libvirt_errors import translate
from virt_launcher.hypervisor.libvirt_guest import GuestDoor
from virt_launcher.hypervisor.libvirt_host import CONNECT_DEADLINE_S, open_connection
from virt_launcher.hypervisor.libvirt_sev import SevDoor
from virt_launcher.hypervisor.ports import Change, Facts
from virt_launcher.hypervisor.states import state_and_reason

log = get_logger(__name__)

_STATS = (
    libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
    | libvirt.VIR_DOMAIN_STATS_BALLOON
    | libvirt.VIR_DOMAIN_STATS_VCPU
    | libvirt.VIR_DOMAIN_STATS_INTERFACE
    | libvirt.VIR_DOMAIN_STATS_BLOCK
)
_STATS_FLAGS = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT


class LibvirtDoor(GuestDoor, SevDoor):
    def __init__(self, uri: str, domain_name: str) -> None:
        self._uri = uri
        self._name = domain_name
        self._connection: Any = None
        self._lock = threading.Lock()
        self._lost = threading.Event()
        self._watchers: list[Callable[[Change], None]] = []

    # -- connection ------------------------------------------------------------------------------------------------

    def connect(self, deadline_s: float, stop: threading.Event | None = None) -> None:
        """Waits for the daemon's socket: it comes within some 20 ms, so looking often is cheap."""
        self._adopt(open_connection(self._uri, deadline_s, stop))

    def _adopt(self, connection: Any) -> None:
        connection.registerCloseCallback(self._on_close, None)
        lifecycle, agent = libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE
        connection.domainEventRegisterAny(None, lifecycle, self._on_event, Change.LIFECYCLE)
        connection.domainEventRegisterAny(None, agent, self._on_event, Change.AGENT)
        with self._lock:
            self._connection = connection
            self._lost.clear()

    def keep_connected(self, stop: threading.Event) -> None:
        """The body of the thread that connects again after a loss."""
        while not stop.is_set():
            if not self._lost.wait(1.0) or stop.is_set():
                continue
            try:
                self.connect(CONNECT_DEADLINE_S, stop)
            except UnavailableError as error:
                if not stop.is_set():
                    log.warning("still no connection to libvirt", error=str(error))
                continue
            log.info("connected to libvirt again")
            self._tell(Change.RECONNECTED)

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        self._lost.set()  # Wakes keep_connected, which then sees the stop.
        if connection is not None:
            try:
                connection.unregisterCloseCallback()
                connection.close()
            except libvirt.libvirtError as error:
                log.debug("libvirt's connection did not close well", error=error.get_error_message())

    def watch(self, watcher: Callable[[Change], None]) -> None:
        self._watchers.append(watcher)

    def _on_event(self, *arguments: Any) -> None:
        """(connection, domain, …, what we registered); a lifecycle event has its kind in third place."""
        change = arguments[-1]
        if change is Change.LIFECYCLE and arguments[2] == libvirt.VIR_DOMAIN_EVENT_CRASHED:
            change = Change.PANIC
        self._tell(change)

    def _on_close(self, _connection: object, _reason: int, _opaque: object) -> None:
        self._lost.set()

    def _tell(self, change: Change) -> None:
        for watcher in self._watchers:
            watcher(change)

    # -- the machine -----------------------------------------------------------------------------------------------

    def version(self) -> int:
        with self._asking() as connection:
            return int(connection.getLibVersion())

    def define(self, xml: str) -> None:
        with self._asking() as connection:
            connection.defineXML(xml)

    def start(self, *, paused: bool = False) -> None:
        with self._machine() as domain:
            domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)

    def facts(self) -> Facts | None:
        try:
            with self._machine() as domain:
                state, reason = state_and_reason(*domain.state())
                return Facts(state, reason, domain.UUIDString())
        except NoMachineError:
            return None

    def describe(self) -> str:
        with self._machine() as domain:
            return str(domain.XMLDesc(0))

    def suspend(self) -> None:
        with self._machine() as domain:
            domain.suspend()

    def resume(self) -> None:
        with self._machine() as domain:
            domain.resume()

    def shutdown(self) -> None:
        with self._machine() as domain:
            domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)

    def destroy(self) -> None:
        with self._machine() as domain:
            domain.destroy()

    def undefine(self) -> None:
        with self._machine() as domain:
            has_nvram = "<nvram" in domain.XMLDesc(0)
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM if has_nvram else 0)

    def attach_device(self, xml: str) -> None:
        with self._machine() as domain:
            domain.attachDeviceFlags(xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def update_device(self, xml: str) -> None:
        with self._machine() as domain:
            domain.updateDeviceFlags(xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def detach_device(self, alias: str, deadline_s: float) -> None:
        from virt_launcher.hypervisor.libvirt_detach import detach  # Most machines never lose a device.

        with self._asking() as connection, self._machine() as domain:
            detach(connection, domain, alias, deadline_s)

    def stats(self) -> dict[str, Any]:
        with self._asking() as connection:
            found = connection.getAllDomainStats(_STATS, _STATS_FLAGS)
        return dict(found[0][1]) if found else {}

    def disk_errors(self) -> dict[str, str]:
        words = {libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE: "no space left"}
        with self._machine() as domain:
            return {disk: words.get(code, "input/output error") for disk, code in domain.diskErrors().items()}

    # -- errors ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        with self._lock:
            connection = self._connection
        if connection is None or self._lost.is_set():
            raise UnavailableError("there is no connection to libvirt now")
        try:
            yield connection
        except libvirt.libvirtError as error:
            failure = translate(error, connection, self._name)
            if isinstance(failure, UnavailableError):
                self._lost.set()
            raise failure from error

    @contextmanager
    def _machine(self) -> Iterator[Any]:
        with self._asking() as connection:
            yield connection.lookupByName(self._name)
