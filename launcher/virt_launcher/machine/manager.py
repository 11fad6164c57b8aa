"""The one machine of this launcher.

Makes it, changes it, ends it, and says how it is. One lock for all that changes it.

The machine is defined and then started, not created as a transient one: libvirt then still knows why it ended after
it has ended, also across a restart of the daemon, so the state can always be read and no event is needed to be
true.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from virt_core.apis import handoffs
from virt_core.apis.owncpus import is_dedicated
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.logs import get_logger
from virt_launcher.convert.context import Attachment, Context, Smbios
from virt_launcher.convert.converter import convert
from virt_launcher.convert.pinning import plan_of
from virt_launcher.disks.held import check_held
from virt_launcher.disks.prepare import DiskPreparer, Prepared
from virt_launcher.domain.domain import to_xml
from virt_launcher.errors import InvalidVMIError, LauncherError, NoMachineError, UnavailableError, WrongStateError
from virt_launcher.hypervisor.ports import ALIVE, Facts, Hypervisor, State
from virt_launcher.machine.attestation import Attestation
from virt_launcher.machine.controls import Controls
from virt_launcher.machine.guest_agent import GuestAgent
from virt_launcher.machine.guest_clock import GuestClock
from virt_launcher.machine.guest_commands import GuestCommands
from virt_launcher.machine.monitor import Monitor
from virt_launcher.machine.observer import Observer
from virt_launcher.machine.state import CredentialsView, MachineView, Synced
from virt_launcher.settings import Settings

if TYPE_CHECKING:
    from virt_launcher.converge.changes import NeedsRestart
    from virt_launcher.convert.cpuplan import HostCpu

log = get_logger(__name__)

DEFAULT_STATS_PERIOD_S = 10
_LOCK_DEADLINE_S = 15.0


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """What only virt-handler knows."""

    allow_emulation: bool = False
    capability_cache: Mapping[str, bytes] = field(default_factory=dict)
    attachments: Mapping[str, Attachment] = field(default_factory=dict)
    smbios: Smbios = field(default_factory=Smbios)
    memballoon_stats_period_s: int = DEFAULT_STATS_PERIOD_S


class DomainManager:
    def __init__(
        self,
        settings: Settings,
        hypervisor: Hypervisor,
        preparer: DiskPreparer,
        monitor: Monitor,
        agent: GuestAgent,
        *,
        kvm: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._hypervisor = hypervisor
        self._preparer = preparer
        self._monitor = monitor
        self._observer = Observer(settings, hypervisor, monitor, agent)
        self.stats = self._observer.stats
        self._kvm = kvm
        self._modify = threading.Lock()
        self.controls = Controls(hypervisor, self._modifying, self._require)
        self.clock = GuestClock(hypervisor, lambda: agent.view.connected)
        self.commands = GuestCommands(hypervisor, self._require)
        #: Called with the VMI before its machine starts.
        self.on_start: Callable[[VirtualMachineInstance], None] = lambda _vmi: None
        #: How far the guest has its access credentials.
        self.credentials: Callable[[], CredentialsView | None] = lambda: None
        self.attestation = Attestation(hypervisor, self._modifying, self._require)
        self.handoffs: dict[str, int] = {}
        self.synced = Synced()

    def view(self) -> MachineView:
        """The machine as it is now."""
        seen = self._observer.view()
        credentials = self.credentials() if seen.alive else None
        return replace(seen, filesystems_frozen=self.controls.frozen and seen.alive, credentials=credentials)

    def stamp(self, handoff: str) -> None:
        """Notes the time of a handoff, once."""
        self.handoffs.setdefault(handoff, time.time_ns() // 1000)

    # -- commands --------------------------------------------------------------------------------------------------

    def sync(self, vmi: VirtualMachineInstance, options: SyncOptions, digest: str = "") -> MachineView:
        """Makes the machine match the VMI. Idempotent. `digest` is the caller's name for what is asked."""
        self._check_identity(vmi)
        with self._modifying():
            facts = self._hypervisor.facts()
            if facts is not None and facts.state in ALIVE:
                self.synced = Synced()  # Half of it may be done when it fails.
                self.synced = Synced(digest, self._converge(vmi, options))
            elif self._monitor.started:
                raise WrongStateError("the machine has ended; a launcher starts its machine only once")
            elif self._monitor.stopping:
                raise WrongStateError("the launcher is stopping")
            elif self._settings.receives:
                raise WrongStateError("this launcher waits for a machine that is migrated to it, so it starts none")
            else:
                self.on_start(vmi)
                self._start(vmi, options)
                self.synced = Synced(digest)
        return self.view()

    def pause(self) -> None:
        with self._modifying():
            if self._require().state is not State.PAUSED:
                self._hypervisor.suspend()

    def unpause(self) -> None:
        with self._modifying():
            if self._require().state is not State.PAUSED:
                return
            self._hypervisor.resume()
        self.clock.begin()

    def shut_down(self) -> None:
        with self._modifying():
            facts = self._require()
            if facts.state is State.PAUSED and facts.reason == "User":
                # A guest that stands still cannot hear the power button.
                self._hypervisor.resume()
            self._hypervisor.shutdown()

    def kill(self) -> None:
        with self._modifying():
            facts = self._hypervisor.facts()
            if facts is not None and facts.state in ALIVE:
                self._hypervisor.destroy()

    def delete(self) -> None:
        with self._modifying():
            facts = self._hypervisor.facts()
            if facts is None:
                if self._settings.receives:
                    self._monitor.no_longer_needed()
                return
            if facts.state in ALIVE:
                raise WrongStateError("the machine still runs; shut it down or kill it first")
            self.view()  # Keeps how it ended for the last notice.
            self._hypervisor.undefine()

    # -- inside ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _modifying(self) -> Iterator[None]:
        """One change at a time; whoever has to wait too long is told so."""
        if not self._modify.acquire(timeout=_LOCK_DEADLINE_S):
            raise UnavailableError("another command for this machine is still running")
        try:
            yield
        finally:
            self._modify.release()

    def _check_identity(self, vmi: VirtualMachineInstance) -> None:
        ours, theirs = self._settings.uid, vmi.metadata.uid
        if ours != theirs:
            raise InvalidVMIError("metadata.uid", f"this launcher was started for VMI {ours}, not for {theirs}")

    def _require(self) -> Facts:
        facts = self._hypervisor.facts()
        if facts is None or facts.state not in ALIVE:
            raise NoMachineError("there is no running machine")
        return facts

    def _start(self, vmi: VirtualMachineInstance, options: SyncOptions) -> None:
        self._write_capabilities(options.capability_cache)
        prepared = self._preparer.prepare(vmi)
        context = self._context(vmi, options, prepared, self._usable_kvm(options))
        domain = convert(context)
        self._settings.paths.machine_dir(self._settings.uid).mkdir(parents=True, exist_ok=True)
        self._hypervisor.define(to_xml(domain))
        self.stamp(handoffs.DOMAIN_DEFINED.name)
        try:
            prepared.finish()
            self._hypervisor.start(paused=vmi.spec.start_strategy == "Paused")
            self._check_disks(prepared)
            self._pin(context)
        except LauncherError as error:
            self._forget_failed_start()
            raise self._explain(error) from error
        self.stamp(handoffs.GUEST_STARTED.name)
        self._monitor.machine_started()

    def _check_disks(self, prepared: Prepared) -> None:
        """Ends a machine that holds a disk which is not the one that was checked."""
        if not (identities := prepared.identities()):
            return
        try:
            check_held(self._monitor.read_pid(), identities)
        except LauncherError:
            self._hypervisor.destroy()
            raise

    def _pin(self, context: Context) -> None:
        """Where libvirt cannot. A machine that is not on its own CPUs is ended."""
        if context.kvm or not context.host_cpus:
            return
        from virt_launcher.machine.pinning import pin_vcpus

        try:
            pin_vcpus(self._monitor.read_pid(), plan_of(context).vcpus)
        except LauncherError:
            self._hypervisor.destroy()
            raise

    def _context(self, vmi: VirtualMachineInstance, options: SyncOptions, prepared: Prepared, kvm: bool) -> Context:
        return Context(
            vmi=vmi,
            machine_dir=str(self._settings.paths.machine_dir(self._settings.uid)),
            kvm=kvm,
            libvirt_version=self._hypervisor.version(),
            sources=prepared.sources,
            kernel=prepared.kernel,
            firmware=prepared.firmware,
            attachments=options.attachments,
            smbios=options.smbios,
            memballoon_stats_period_s=options.memballoon_stats_period_s,
            vhost_vsock=(self._settings.paths.devices / "vhost-vsock").exists(),
            host_cpus=_own_cpus(vmi),
        )

    def _usable_kvm(self, options: SyncOptions) -> bool:
        kvm = self._kvm()
        if not kvm and not (options.allow_emulation or self._settings.allow_emulation):
            raise WrongStateError("KVM cannot be used on this node, and software emulation is not allowed")
        return kvm

    def _converge(self, vmi: VirtualMachineInstance, options: SyncOptions) -> tuple[NeedsRestart, ...]:
        """Imported only here: most machines run to their end as they were started."""
        from virt_launcher.converge.converge import converge

        def context_of(vmi: VirtualMachineInstance, prepared: Prepared) -> Context:
            return self._context(vmi, options, prepared, kvm=False)  # The running machine knows better.

        return converge(self._hypervisor, self._preparer, vmi, context_of, self._monitor.read_pid)

    def _write_capabilities(self, files: Mapping[str, bytes]) -> None:
        """Before libvirt looks at QEMU for the first time, so that it need not start it only to ask what it can do."""
        directory = self._settings.paths.capability_cache
        for name, content in files.items():
            if "/" in name or not name.endswith(".xml"):
                raise InvalidVMIError("", f"{name!r} is not the name of a capability cache file")
            directory.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)

    def _forget_failed_start(self) -> None:
        try:
            self._hypervisor.undefine()
        except LauncherError as error:
            log.warning("a machine that did not start could not be removed again", error=str(error))

    def _explain(self, error: LauncherError) -> LauncherError:
        if isinstance(error, (UnavailableError, InvalidVMIError)):
            return error
        words = self._monitor.last_words()
        known = not words or words in str(error)
        return LauncherError(f"QEMU did not start: {error}" if known else f"QEMU did not start: {error}: {words}")


def _own_cpus(vmi: VirtualMachineInstance) -> tuple[HostCpu, ...]:
    if not is_dedicated(vmi):
        return ()
    from virt_launcher.machine.pinning import host_cpus

    return host_cpus()
