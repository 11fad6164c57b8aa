"""The one machine of this launcher.

Makes it, changes it, ends it, and says how it is. One lock for all that changes it.

The machine is defined and then started, not created as a transient one: libvirt then still knows why it ended after
it has ended, also across a restart of the daemon, so the state can always be read and no event is needed to be
true.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from virt_core.apis import handoffs, names
from virt_core.apis.keptstate import keeps_state, tracks_blocks
from virt_core.apis.owncpus import is_dedicated
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.logs import get_logger
from virt_core.runtime.record import record
from virt_launcher.convert.architecture import OF_KERNEL
from virt_launcher.convert.context import Attachment, Context, Smbios
from virt_launcher.convert.converter import convert
from virt_launcher.convert.pinning import plan_of
from virt_launcher.disks.held import check_held
from virt_launcher.disks.prepare import DiskPreparer, Prepared
from virt_launcher.domain.domain import Domain, from_xml, to_xml
from virt_launcher.errors import InvalidVMIError, LauncherError, NoMachineError, UnavailableError, WrongStateError
from virt_launcher.hypervisor.ports import ALIVE, Facts, Hypervisor, State
from virt_launcher.machine.attestation import Attestation
from virt_launcher.machine.controls import Controls
from virt_launcher.machine.dirty_rate import DirtyRate
from virt_launcher.machine.disk_trouble import DiskTrouble
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
    from virt_launcher.domain.machine import CpuTune
    from virt_launcher.machine.backup import Backups, Order
    from virt_launcher.machine.life_signs import Silence
    from virt_launcher.machine.memory_dump import MemoryDumps
    from virt_launcher.moves.reception import Expected
    from virt_launcher.moves.traffic import Traffic, Wishes

log = get_logger(__name__)

DEFAULT_STATS_PERIOD_S = 10
_LOCK_DEADLINE_S = 15.0


@record(frozen=True, slots=True)
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
        self.disk_trouble = DiskTrouble(hypervisor, self._modifying, self._goes_on)
        self.dirty_rate = DirtyRate(hypervisor, self._require, self._rate_of_move)
        #: Called when the machine changed without a command.
        self.on_news: Callable[[], None] = lambda: None
        #: Called with the VMI before its machine starts.
        self.on_start: Callable[[VirtualMachineInstance], None] = lambda _vmi: None
        #: Called before the work on a machine begins, also on a running one.
        self.before_start: Callable[[], None] = lambda: None
        #: What others make of the domain before it is defined.
        self.on_define: Callable[[str, VirtualMachineInstance], str] | None = None
        #: How far the guest has its access credentials.
        self.credentials: Callable[[], CredentialsView | None] = lambda: None
        #: What was never seen of the guest.
        self.silence: Callable[[], Silence | None] = lambda: None
        self._dumps: MemoryDumps | None = None
        self._backups: Backups | None = None
        self.attestation = Attestation(hypervisor, self._modifying, self._require)
        self.handoffs: dict[str, int] = {}
        self.synced = Synced()
        #: Called when a move has news.
        self.on_move: Callable[[], None] = lambda: None
        #: What people should read of the machine: reason and sentence.
        self.on_remark: Callable[[str, str], None] = lambda _reason, _words: None
        self._traffic: Traffic | None = None
        #: What was made ready for a machine that moves in.
        self._expected: Expected | None = None
        self._agent, self._clock_is_late = agent, False
        agent.on_news(self._agent_spoke)

    def view(self) -> MachineView:
        """The machine as it is now."""
        seen = self.disk_trouble.shown(self._observer.view())
        credentials = self.credentials() if seen.alive else None
        move = self._traffic.view if self._traffic is not None else None
        silence = self.silence() if seen.alive and not seen.agent.connected else None
        frozen = self.controls.frozen and seen.alive
        dump = self._dumps.last if self._dumps is not None else None
        if self._dumps is not None:
            seen = self._dumps.shown(seen)
        backup = self._backups.last if self._backups is not None else None
        return replace(
            seen,
            filesystems_frozen=frozen,
            credentials=credentials,
            silence=silence,
            move=move,
            memory_dump=dump,
            backup=backup,
        )

    def stamp(self, handoff: str) -> None:
        """Notes the time of a handoff, once."""
        self.handoffs.setdefault(handoff, time.time_ns() // 1000)

    # -- commands --------------------------------------------------------------------------------------------------

    def sync(self, vmi: VirtualMachineInstance, options: SyncOptions, digest: str = "") -> MachineView:
        """Makes the machine match the VMI. Idempotent. `digest` is the caller's name for what is asked."""
        self._check_identity(vmi)
        with self._modifying():
            self.before_start()
            facts = self._hypervisor.facts()
            if self.moving:
                raise UnavailableError("the machine is being moved to another node")
            self._demand_free(UnavailableError)
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
            self._demand_free()
            if self._require().state is not State.PAUSED:
                return
            self._hypervisor.resume()
        self.clock.begin()

    def dump_memory(self, volume: str, file: str, kind: str = "", hold_s: float = 0.0) -> None:
        """Begins. Holds no lock while it is written: a machine can be ended at any time."""
        from virt_launcher.machine.memory_dump import MemoryDumps

        with self._modifying():
            self._require()
            if kind and self.moving:
                raise WrongStateError("the machine is being moved to another node")
            if self._dumps is None:
                hotplug, kill = self._settings.paths.hotplug, self._monitor.kill_qemu
                self._dumps = MemoryDumps(self._hypervisor, hotplug, self.on_news, kill)
            self._dumps.begin(volume, file, self._observer.view().memory_bytes, kind, hold_s)

    def release_state(self) -> None:
        """Lets a guest go on whose state was saved."""
        with self._modifying():
            if self._dumps is not None:
                self._dumps.still.release()
        self.clock.begin()

    def _demand_free(self, error: type[LauncherError] = WrongStateError) -> None:
        """A guest that goes on makes its saved state worthless, and its disks with it."""
        if self._dumps is not None and self._dumps.holds_still:
            raise error("the machine stands still while its state is saved")

    @property
    def backups(self) -> Backups:
        """Imported only here: most machines have none."""
        if self._backups is None:
            from virt_launcher.machine.backup import Backups

            paths = self._settings.paths
            self._backups = Backups(
                self._hypervisor,
                self.controls,
                directory=paths.hotplug,
                layers=paths.kept_state / names.KEPT_BLOCKS,
                modifying=self._modifying,
                read_pid=self._monitor.read_pid,
                on_news=self.on_news,
            )
        return self._backups

    def back_up(self, order: Order) -> None:
        """Begins. Holds no lock while it is written."""
        with self._modifying():
            self._require()
            self._demand_free()
            if self.moving:
                raise UnavailableError("the machine is being moved to another node")
            self.backups.begin(order)

    def shut_down(self) -> None:
        with self._modifying():
            self._demand_free()
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

    # -- a move ----------------------------------------------------------------------------------------------------

    @property
    def moving(self) -> bool:
        return self._traffic is not None and self._traffic.under_way

    def _rate_of_move(self) -> int | None:
        move = self._traffic.view if self._traffic is not None and self._traffic.under_way else None
        return move.dirty_bytes_per_second if move is not None else None

    @property
    def traffic(self) -> Traffic:
        """Imported only here: most machines end where they started."""
        if self._traffic is None:
            from virt_launcher.moves.traffic import Traffic

            paths, uid = self._settings.paths, self._settings.uid
            self._traffic = Traffic(
                self._hypervisor,
                sockets=paths.sockets,
                private=paths.machine_dir(uid),
                require=self._require,
                kill=self._monitor.kill_qemu,
                on_news=self.on_move,
                on_remark=self.on_remark,
            )
        return self._traffic

    def see_off(self, timeout_s: float) -> None:
        """Waits until libvirt has said how a move went."""
        if self._traffic is not None and not self._traffic.wait(timeout_s):
            log.warning("libvirt does not say how the move went", timeout_s=timeout_s)

    def leave(self, vmi: VirtualMachineInstance, wishes: Wishes) -> None:
        self._check_identity(vmi)

        def tune_there(running: Domain) -> CpuTune | None:
            from virt_launcher.moves.pins import pins_there

            return pins_there(self._context(vmi, SyncOptions(), Prepared(), running.type == "kvm"), running)

        with self._modifying():
            self._demand_free()
            self._leave_backups(vmi)
            self.traffic.leave(vmi, wishes, tune_there, self._settings.paths)

    def _leave_backups(self, vmi: VirtualMachineInstance) -> None:
        if not tracks_blocks(vmi):
            return
        if self.backups.under_way:
            raise WrongStateError("the machine is being backed up; it can move when that is over")
        self._require()
        self.backups.forget_checkpoints()

    def disk_facts(self, vmi: VirtualMachineInstance) -> dict[str, tuple[int, int]]:
        """Checksum and size, by volume. Holds no lock: it reads for a while, and what it reads does not change."""
        from virt_launcher.moves.reception import facts_of

        self._check_identity(vmi)
        self._require()
        return facts_of(vmi, from_xml(self._hypervisor.describe()), self._settings.paths, self._hypervisor.disk_size)

    def prepare_target(self, vmi: VirtualMachineInstance, options: SyncOptions) -> tuple[HostCpu, ...]:
        """All that a start makes but the machine itself, which libvirt makes when it arrives. The CPUs of its own."""
        from virt_launcher.moves.reception import make_ready

        self._check_identity(vmi)
        with self._modifying():
            if not self._settings.receives:
                raise WrongStateError("this launcher has a machine of its own, so none can be migrated to it")
            if self._monitor.stopping:
                raise WrongStateError("the launcher is stopping")
            if self._hypervisor.facts() is not None:
                return self._expected.context.host_cpus if self._expected is not None else ()  # It arrives already.
            self._write_capabilities(options.capability_cache)
            kvm = self._usable_kvm(vmi, options)
            self.before_start()
            expected = make_ready(
                vmi, self._preparer, self._settings.paths, lambda v, p: self._context(v, options, p, kvm)
            )
            prepared = expected.prepared
            self._keep_state(expected.context.vmi, expected.domain, prepared)
            if prepared.untold:
                _tell_devices(expected.context, prepared, to_xml(expected.domain))
            prepared.finish()
            self._settings.paths.machine_dir(self._settings.uid).mkdir(parents=True, exist_ok=True)
            self.on_start(vmi)
            self._expected = expected
            return expected.context.host_cpus

    def arrived(self) -> None:
        """The machine has moved in: from here on it is ours like one that we started."""
        self.stamp(handoffs.GUEST_STARTED.name)
        self._monitor.machine_started()
        self._clock_is_late = True
        self._agent_spoke()
        if self._expected is None:
            return
        try:
            self._check_disks(self._expected.prepared)
            self._pin(self._expected.context)
        except LauncherError as error:
            log.error("the machine that moved in was ended", error=str(error))
            return
        self._settle_disks(self._expected.context.vmi)
        self._refresh_links(self._expected.context)

    def _settle_disks(self, vmi: VirtualMachineInstance) -> None:
        if not vmi.status.migrated_volumes:
            return
        from virt_launcher.moves.reception import settle

        try:
            settle(vmi, self._settings.paths)
        except LauncherError as error:
            log.error("a disk that was copied here is not quite settled", error=str(error))

    def _refresh_links(self, context: Context) -> None:
        if any(attachment.refresh_link for attachment in context.attachments.values()):
            from virt_launcher.moves.links import Links  # Few machines need it.

            Links(self._hypervisor, context.attachments, self._modifying).begin()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _agent_spoke(self) -> None:
        """A guest that has moved gets the time once its agent is met again."""
        if self._clock_is_late and self._agent.view.connected:
            self._clock_is_late = False
            self.clock.begin()

    def _goes_on(self) -> None:
        self.clock.begin()
        self.on_news()

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
        context = self._context(vmi, options, prepared, self._usable_kvm(vmi, options))
        domain = convert(context)
        self._keep_state(vmi, domain, prepared)
        _await_shares(vmi, self._settings)
        self._settings.paths.machine_dir(self._settings.uid).mkdir(parents=True, exist_ok=True)
        self._define(domain, vmi)
        self.stamp(handoffs.DOMAIN_DEFINED.name)
        try:
            if prepared.untold:
                _tell_devices(context, prepared, self._hypervisor.describe())
            prepared.finish()
            self._run(context, prepared)
        except LauncherError as error:
            self._forget_failed_start()
            raise self._explain(error, vmi) from error
        self.stamp(handoffs.GUEST_STARTED.name)
        self._monitor.machine_started()

    def _run(self, context: Context, prepared: Prepared) -> None:
        paused = context.vmi.spec.start_strategy == "Paused"
        if names.ANNOTATION_RESUME_FROM in context.vmi.metadata.annotations:
            from virt_launcher.machine.resume import resume  # Few machines need it.

            resumed = resume(
                context.vmi,
                self._hypervisor,
                self._settings.paths,
                settle=lambda: self._settle(context, prepared),
                remark=self.on_remark,
                paused=paused,
            )
            if resumed:
                self._clock_is_late = True
                return
        self._hypervisor.start(paused=paused)
        self._settle(context, prepared)

    def _settle(self, context: Context, prepared: Prepared) -> None:
        self._check_disks(prepared)
        self._pin(context)

    def _keep_state(self, vmi: VirtualMachineInstance, domain: Domain, prepared: Prepared) -> None:
        if keeps_state(vmi.spec):
            from virt_launcher.disks import kept_state  # Few machines need it.

            prepared.files.extend(kept_state.settle(vmi, domain, self._settings.paths))
            self.controls.before_freeze = partial(kept_state.flush, self._settings.paths)

    def _define(self, domain: Domain, vmi: VirtualMachineInstance) -> None:
        xml = to_xml(domain)
        if self.on_define is None:
            self._hypervisor.define(xml)
            return
        xml = self.on_define(xml, vmi)
        try:
            self._hypervisor.define(xml)
        except UnavailableError:
            raise
        except LauncherError as error:
            # Ours alone is never refused; to ask the same sidecars again would change nothing.
            raise InvalidVMIError("", f"libvirt refuses what hook sidecars made of the domain: {error}") from error

    def _revise(self, domain: Domain, vmi: VirtualMachineInstance) -> Domain:
        return domain if self.on_define is None else from_xml(self.on_define(to_xml(domain), vmi))

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
            kept_state=str(self._settings.paths.kept_state),
            vhost_vsock=(self._settings.paths.devices / "vhost-vsock").exists(),
            host_cpus=_own_cpus(vmi),
            environment=os.environ,
            serial_log=not self._settings.no_serial_log,
            free_page_reporting=not self._settings.no_free_page_reporting,
            libvirt_chooses_firmware=self._settings.firmware_auto_selection,
            node_architecture=node_architecture(),
            any_architecture=self._settings.any_architecture,
            sys=Path("/sys") if self._settings.devices_near_memory else None,
            share_sockets=str(self._settings.paths.share_sockets),
        )

    def _usable_kvm(self, vmi: VirtualMachineInstance, options: SyncOptions) -> bool:
        if self._settings.any_architecture and vmi.spec.architecture not in ("", node_architecture()):
            return False  # Nobody but an emulator can run it.
        kvm = self._kvm()
        if not kvm and not (options.allow_emulation or self._settings.allow_emulation):
            raise WrongStateError("KVM cannot be used on this node, and software emulation is not allowed")
        return kvm

    def _converge(self, vmi: VirtualMachineInstance, options: SyncOptions) -> tuple[NeedsRestart, ...]:
        """Imported only here: most machines run to their end as they were started."""
        from virt_launcher.converge.converge import converge

        def context_of(vmi: VirtualMachineInstance, prepared: Prepared) -> Context:
            return self._context(vmi, options, prepared, kvm=False)  # The running machine knows better.

        return converge(self._hypervisor, self._preparer, vmi, context_of, self._monitor.read_pid, revise=self._revise)

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

    def _explain(self, error: LauncherError, vmi: VirtualMachineInstance) -> LauncherError:
        if isinstance(error, (UnavailableError, InvalidVMIError)):
            return error
        words = self._monitor.last_words()
        known = not words or words in str(error)
        message = f"QEMU did not start: {error}" if known else f"QEMU did not start: {error}: {words}"
        # A virtiofsd serves one connection: a second try would only hide the reason of the first.
        return InvalidVMIError("", message) if vmi.spec.domain.devices.filesystems else LauncherError(message)


def _await_shares(vmi: VirtualMachineInstance, settings: Settings) -> None:
    if not vmi.spec.domain.devices.filesystems:
        return
    from virt_launcher.shares.sockets import await_shares  # Few machines need it.

    await_shares(vmi, str(settings.paths.share_sockets))


def _tell_devices(context: Context, prepared: Prepared, xml: str) -> None:
    """Tags of devices, to the guest."""
    from virt_launcher.disks.device_tags import devices  # Few machines need it.

    cells = {cpu.number: cpu.cell for cpu in context.host_cpus}
    vcpus = plan_of(context).vcpus if cells else ()
    prepared.tell(devices(context.vmi, xml, [cells[cpu] for cpu in vcpus]))


def node_architecture() -> str:
    """By the API's name."""
    machine = os.uname().machine
    return OF_KERNEL.get(machine, machine)


def _own_cpus(vmi: VirtualMachineInstance) -> tuple[HostCpu, ...]:
    if not is_dedicated(vmi):
        return ()
    from virt_launcher.machine.pinning import host_cpus

    return host_cpus()
