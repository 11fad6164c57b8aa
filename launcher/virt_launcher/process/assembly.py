"""The launcher's parts and how they are joined. Imports what is heavy: grpc, protobuf, libvirt."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from virt_core.apis import handoffs
from virt_core.apis.credentials import Delivery, by_agent
from virt_core.apis.facts import has_metrics
from virt_core.apis.guestprobes import asks_guest
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.rpc.server import RpcServer
from virt_core.runtime.logs import get_logger
from virt_core.runtime.supervisor import Supervisor
from virt_launcher.disks.prepare import DiskPreparer
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.daemon import Daemon
from virt_launcher.hypervisor.kvm import kvm_usable
from virt_launcher.hypervisor.libvirt_door import LibvirtDoor
from virt_launcher.hypervisor.libvirt_host import register_event_loop, run_event_loop, wake_event_loop
from virt_launcher.hypervisor.ports import State
from virt_launcher.machine.events import EventWorker
from virt_launcher.machine.guest_agent import GuestAgent
from virt_launcher.machine.logs import BoundedLogs
from virt_launcher.machine.manager import DomainManager
from virt_launcher.machine.monitor import Monitor
from virt_launcher.machine.state import MachineView, has_arrived
from virt_launcher.process.children import Children
from virt_launcher.service.cmd_server import LauncherService, serve
from virt_launcher.service.notify_client import NotifyClient
from virt_launcher.settings import Settings

if TYPE_CHECKING:
    from virt_launcher.hooks.sidecars import Sidecars
    from virt_launcher.passt.carrier import Carrier

log = get_logger(__name__)

#: From the end of a machine that was moved to libvirt's word about the move.
_MOVE_END_S = 5.0

_libc = ctypes.CDLL(None)


class Assembly:
    def __init__(self, settings: Settings, children: Children, daemon: Daemon) -> None:
        self._settings = settings
        self._daemon = daemon
        self._server: RpcServer | None = None
        self._settled = False
        self._ended = threading.Event()
        register_event_loop()
        self.door = LibvirtDoor(daemon.uri, settings.domain_name)
        self.monitor = Monitor(settings, children)
        self.agent = GuestAgent(self.door)
        preparer = DiskPreparer(settings.paths, children)
        self.manager = DomainManager(settings, self.door, preparer, self.monitor, self.agent, kvm=kvm_usable)
        self._sidecars: Sidecars | None = None
        self._children = children
        self._carrier: Carrier | None = None
        if settings.hook_sidecars:
            self._listen_to_sidecars(preparer)
        self.notify = NotifyClient(settings.paths.notify_socket)
        self.events = EventWorker(self.manager.view, self.notify)
        self.events.on_state(self.manager.disk_trouble.on_state)
        self.manager.on_news = self.events.poke
        self.events.on_state(self._on_state)
        self.manager.on_start = self._on_start
        self.manager.on_move = self.events.poke
        self.manager.on_remark = lambda reason, words: self.notify.record("Warning", reason, words)
        self.agent.on_news(self.events.poke)
        self.agent.on_news(self.manager.controls.agent_changed)
        self.manager.controls.on_late_thaw = self.events.poke
        self.door.watch(self.monitor.machine_changed)
        self.door.watch(self.agent.machine_changed)  # Before somebody reads how it is.
        self.door.watch(self.events.poke)
        self.monitor.on_qemu_end(self.events.poke)

    def start_threads(self, supervisor: Supervisor) -> None:
        supervisor.thread("libvirt-events", run_event_loop)
        supervisor.thread("libvirt-daemon", self._daemon.keep_running)
        supervisor.thread("libvirt-connection", self.door.keep_connected)
        supervisor.thread("events", self.events.run)
        supervisor.thread("notify", self.notify.run)
        supervisor.thread("guest-agent", self.agent.run)
        supervisor.thread("logs", self._bounded_logs().run)
        supervisor.thread("warm-up", _warm_up, may_end=True)
        # Run in the reverse order: wake whoever waits, once the stop is set.
        for hook in (
            self.agent.wake,
            self.notify.wake,
            self.events.poke,
            self.door.close,
            wake_event_loop,
            self._stop_server,
        ):
            supervisor.on_stop(hook)

    def _bounded_logs(self) -> BoundedLogs:
        settings, paths = self._settings, self._settings.paths
        logs = (paths.serial_log(settings.uid), paths.qemu_log(settings.domain_name), paths.daemon_log)
        return BoundedLogs(logs, settings.max_log_bytes)

    def open_for_commands(self) -> None:
        service = LauncherService(self._settings, self.manager, self.events.poke)
        self._server = serve(self._settings, service)
        self.manager.stamp(handoffs.LAUNCHER_READY.name)
        self._settings.paths.init_socket.rename(self._settings.paths.command_socket)

    def _on_start(self, vmi: VirtualMachineInstance) -> None:
        """What most machines have not, and never import."""
        if asks_guest(vmi):
            self._open_for_probes()
        self._look_for_life(vmi)
        if wanted := by_agent(vmi):
            self._deliver(wanted)
        self._carry(vmi)
        if has_metrics(vmi.spec):
            from virt_launcher.hostmetrics.service import begin

            begin(vmi, self._settings, self.door, self._ended)

    def _carry(self, vmi: VirtualMachineInstance) -> None:
        if not any(nic.passt_binding is not None for nic in vmi.spec.domain.devices.interfaces):
            return
        from virt_launcher.passt.carrier import Carrier, wanted

        if (found := wanted(vmi)) is not None:
            directory = self._settings.paths.machine_dir(self._settings.uid)
            self._carrier = self._carrier or Carrier(directory, self._children)
            self._carrier.begin(*found, vmi.spec.hostname or vmi.metadata.name)

    def _look_for_life(self, vmi: VirtualMachineInstance) -> None:
        from virt_launcher.machine.life_signs import LifeSigns

        console = self._settings.paths.serial_log(self._settings.uid)
        signs = LifeSigns(self.door, lambda: self.agent.view.connected, console, self.events.poke)
        self.manager.silence = lambda: signs.silence
        signs.begin(vmi)

    def _listen_to_sidecars(self, preparer: DiskPreparer) -> None:
        from virt_launcher.hooks import cloud_init, define
        from virt_launcher.hooks.sidecars import Sidecars

        sidecars = self._sidecars = Sidecars(self._settings)
        preparer.on_cloud_init = lambda plan, volume, vmi: cloud_init.fill(sidecars, plan, volume, vmi)
        self.manager.on_define = lambda xml, vmi: define.define(sidecars, xml, vmi)
        self.manager.before_start = sidecars.begin

    def dismiss_sidecars(self) -> None:
        """After the last notice, which nobody should wait for."""
        if self._sidecars is not None:
            self._sidecars.dismiss()

    def _deliver(self, wanted: Sequence[Delivery]) -> None:
        from virt_launcher.machine.credentials import Credentials

        credentials = Credentials(
            self.door, lambda: self.agent.view.connected, self._settings.paths.credentials, self.events.poke
        )
        self.manager.credentials = lambda: credentials.view
        self.agent.on_news(credentials.poke)
        credentials.begin(wanted)

    def _open_for_probes(self) -> None:
        from virt_launcher.guestprobe.ask import SOCKET
        from virt_launcher.guestprobe.door import ProbeDoor

        ProbeDoor(self._settings.paths.private / SOCKET, self.manager.commands).open()

    def last_notice(self, timeout_s: float) -> str:
        """Makes sure that virt-handler knows the end. Returns what went wrong, for the exit code."""
        if not self.monitor.started:
            return ""
        if self.monitor.ended:
            self.manager.see_off(_MOVE_END_S)
        try:
            view = self.manager.view()
        except LauncherError as error:
            return f"the machine's end is not known: {error}"
        self.notify.publish(view)
        if not self.notify.flush(timeout_s):
            log.warning("virt-handler did not take the last notice", timeout_s=timeout_s)
        if view.alive or view.ended_well:
            return "" if view.ended_well else "the machine did not end"
        return view.message or f"the machine ended: {view.reason or view.state.value}"

    def _on_state(self, view: MachineView) -> None:
        if self._settings.receives and not self.monitor.started and has_arrived(view):
            self.manager.arrived()
        if self.monitor.started and not view.alive:
            self._ended.set()
            self.monitor.machine_ended()
        elif view.state is State.RUNNING and not self._settled:
            self._settled = True
            _release_memory()

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.stop(grace_s=0.2)


def _warm_up(stop: threading.Event) -> None:
    """Does the one-time work of the first SyncVMI while nobody waits for it."""
    del stop
    from virt_core.apis.base import decode
    from virt_core.apis.vmi import VirtualMachineInstance
    from virt_launcher.domain.domain import Domain, from_xml, to_xml

    decode(b"{}", VirtualMachineInstance)
    from_xml(to_xml(Domain(name="warm-up")))


def _release_memory() -> None:
    """Gives memory back to the system after a burst of work: a launcher lives for months and works for a second."""
    gc.collect()
    trim = getattr(_libc, "malloc_trim", None)  # musl has none.
    if trim is not None:
        trim(0)
