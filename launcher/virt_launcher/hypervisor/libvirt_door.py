"""The door to libvirt's machine. Speaks `ports.Hypervisor` and translates every error at the border.

libvirt's event loop runs in a thread of its own and calls us back there; callbacks only pass a hint on. When the
daemon goes away, calls fail as unavailable and a thread connects again, registers the callbacks anew and says so to
the watchers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import libvirt

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import LauncherError, NoMachineError, UnavailableError
from virt_launcher.hypervisor.libvirt_errors import UNREADABLE, translate
from virt_launcher.hypervisor.libvirt_guest import GuestDoor
from virt_launcher.hypervisor.libvirt_host import CONNECT_DEADLINE_S, open_connection
from virt_launcher.hypervisor.libvirt_sev import SevDoor
from virt_launcher.hypervisor.ports import BackupEnd, Change, Facts, JobFigures
from virt_launcher.hypervisor.states import state_and_reason

if TYPE_CHECKING:
    from virt_launcher.moves.plan import MovePlan

log = get_logger(__name__)

_STATS = (
    libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
    | libvirt.VIR_DOMAIN_STATS_BALLOON
    | libvirt.VIR_DOMAIN_STATS_VCPU
    | libvirt.VIR_DOMAIN_STATS_INTERFACE
    | libvirt.VIR_DOMAIN_STATS_BLOCK
    | libvirt.VIR_DOMAIN_STATS_DIRTYRATE
)
_STATS_FLAGS = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT

#: VIR_DOMAIN_BLOCK_RESIZE_CAPACITY, which older bindings do not know.
_WHOLE_DEVICE = 2

#: What libvirt tells by itself, and what it means here.
_EVENTS = {
    libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE: Change.LIFECYCLE,
    libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE: Change.AGENT,
    libvirt.VIR_DOMAIN_EVENT_ID_WATCHDOG: Change.WATCHDOG,
    libvirt.VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE: Change.MEMORY,
}
#: By the kind of such an event.
_KINDS = {
    (Change.LIFECYCLE, libvirt.VIR_DOMAIN_EVENT_CRASHED): Change.PANIC,
    (Change.WATCHDOG, libvirt.VIR_DOMAIN_EVENT_WATCHDOG_POWEROFF): Change.WATCHDOG_END,
}


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
        for event, change in _EVENTS.items():
            connection.domainEventRegisterAny(None, event, self._on_event, change)
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
        """(connection, domain, …, what we registered); the kind of an event is in third place."""
        change = arguments[-1]
        self._tell(_KINDS.get((change, arguments[2]), change))

    def _on_close(self, _connection: object, _reason: int, _opaque: object) -> None:
        self._lost.set()

    def _tell(self, change: Change) -> None:
        for watcher in self._watchers:
            watcher(change)

    # -- the machine -----------------------------------------------------------------------------------------------

    def version(self) -> int:
        with self._asking() as connection:
            return int(connection.getLibVersion())

    def qemu_version(self) -> int:
        with self._asking() as connection:
            return int(connection.getVersion())

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
        """What its firmware and TPM have stored stays: it may be kept in a claim, and else it goes with the Pod."""
        with self._machine() as domain:
            xml = domain.XMLDesc(0)
            kept = libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM if "<nvram" in xml else 0
            kept |= libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM if "<tpm" in xml else 0
            domain.undefineFlags(kept)

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

    def set_processors(self, count: int) -> None:
        with self._machine() as domain:
            domain.setVcpusFlags(count, libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def stats(self) -> dict[str, Any]:
        with self._asking() as connection:
            found = connection.getAllDomainStats(_STATS, _STATS_FLAGS)
        return dict(found[0][1]) if found else {}

    def disk_errors(self) -> dict[str, str]:
        words = {libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE: "no space left"}
        with self._machine() as domain:
            return {disk: words.get(code, "input/output error") for disk, code in domain.diskErrors().items()}

    def disk_size(self, target: str) -> int:
        with self._machine() as domain:
            return int(domain.blockInfo(target)[0])

    def resize_disk(self, target: str, size: int) -> None:
        with self._machine() as domain:
            try:
                domain.blockResize(target, size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
            except libvirt.libvirtError as error:
                # A disk that had a part of its device can have the whole: libvirt 10.0 and newer.
                with suppress(libvirt.libvirtError):
                    domain.blockResize(target, 0, _WHOLE_DEVICE)
                    return
                raise error

    def dump_memory(self, path: str) -> None:
        with self._machine() as domain:
            domain.coreDumpWithFormat(path, libvirt.VIR_DOMAIN_CORE_DUMP_FORMAT_RAW, libvirt.VIR_DUMP_MEMORY_ONLY)

    def save_state(self, path: str) -> None:
        from virt_launcher.hypervisor.libvirt_state import save

        with self._machine() as domain:
            save(domain, path)

    def restore(self, path: str) -> None:
        from virt_launcher.hypervisor.libvirt_state import restore

        with self._asking() as connection, self._machine() as domain:
            restore(connection, domain, path)

    def checkpoints(self) -> tuple[str, ...]:
        with self._machine() as domain:
            return tuple(str(each.getName()) for each in domain.listAllCheckpoints(0))

    def redefine_checkpoint(self, xml: str) -> None:
        from virt_launcher.hypervisor.libvirt_backup import REDEFINE

        with self._machine() as domain:
            domain.checkpointCreateXML(xml, REDEFINE)

    def delete_checkpoint(self, name: str, *, forget: bool = False) -> None:
        from virt_launcher.hypervisor.libvirt_backup import FORGET

        with self._machine() as domain:
            domain.checkpointLookupByName(name, 0).delete(FORGET if forget else 0)

    def begin_backup(self, backup: str, checkpoint: str) -> None:
        from virt_launcher.hypervisor.libvirt_backup import REUSE

        with self._machine() as domain:
            domain.backupBegin(backup, checkpoint or None, REUSE)

    def backup_end(self) -> BackupEnd | None:
        from virt_launcher.hypervisor.libvirt_backup import end_of

        with self._machine() as domain:
            return end_of(domain)

    def start_dirty_rate(self, seconds: int) -> None:
        with self._machine() as domain:
            domain.startDirtyRateCalc(seconds, 0)

    # -- a move ----------------------------------------------------------------------------------------------------

    def migrate(self, plan: MovePlan) -> None:
        from virt_launcher.hypervisor.libvirt_move import migrate

        with self._machine() as domain:
            migrate(domain, plan)

    def finish_split(self, plan: MovePlan) -> None:
        from virt_launcher.hypervisor.libvirt_move import migrate

        with self._machine() as domain:
            migrate(domain, plan, again=True)

    def job(self) -> JobFigures | None:
        from virt_launcher.hypervisor.libvirt_move import figures

        with self._machine() as domain:
            return figures(domain)

    def last_job(self) -> JobFigures | None:
        from virt_launcher.hypervisor.libvirt_move import figures

        with self._machine() as domain:
            return figures(domain, over=True)

    def abort_job(self) -> None:
        with self._machine() as domain:
            domain.abortJob()

    def start_post_copy(self) -> None:
        with self._machine() as domain:
            domain.migrateStartPostCopy()

    def allow_downtime(self, milliseconds: int) -> None:
        with self._machine() as domain:
            domain.migrateSetMaxDowntime(milliseconds)

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
        except UNREADABLE as error:
            raise LauncherError("libvirt passes on what the guest says, and that is no text in UTF-8") from error

    @contextmanager
    def _machine(self) -> Iterator[Any]:
        with self._asking() as connection:
            yield connection.lookupByName(self._name)
