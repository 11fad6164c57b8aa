"""The moves of this launcher's machine: at most one leaves at a time, and one that was tried is not tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.domain.domain import Domain, from_xml
from virt_launcher.domain.machine import CpuTune
from virt_launcher.errors import LauncherError, WrongStateError
from virt_launcher.hypervisor.ports import Facts, Hypervisor, State
from virt_launcher.machine.state import MoveView
from virt_launcher.moves import watch
from virt_launcher.moves.destination import images_there, places_there
from virt_launcher.moves.fate import Begin, Cancel, begin, cancel, stands_still
from virt_launcher.moves.plan import MovePlan, Route, copied_disks, hazard, size_bytes
from virt_launcher.moves.source import Departure, Order, declined
from virt_launcher.moves.wire import Wire
from virt_launcher.settings import Paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the job and the cluster's configuration say of a move."""

    uid: str
    bandwidth_mib: int = 0
    auto_converge: bool = False
    post_copy: bool = False
    workload_disruption: bool = False
    unsafe: bool = False
    completion_timeout_per_gib: int = 0
    progress_timeout: int = 0
    parallel: int = 0
    max_downtime_ms: int = 0


class Traffic:
    def __init__(
        self,
        hypervisor: Hypervisor,
        *,
        sockets: Path,
        private: Path,
        require: Callable[[], Facts],
        kill: Callable[[], None],
        on_news: Callable[[], None],
        on_remark: Callable[[str, str], None] = lambda _reason, _words: None,
    ) -> None:
        self._sockets, self._private = sockets, private
        self._on_remark = on_remark
        self._hypervisor, self._require, self._kill, self._on_news = hypervisor, require, kill, on_news
        self._departure: Departure | None = None
        #: The last job, if it was given up before it began.
        self._declined: MoveView | None = None
        self._begun: set[str] = set()
        self._given_up: set[str] = set()

    @property
    def view(self) -> MoveView | None:
        if self._declined is not None:
            return self._declined
        return self._departure.view if self._departure is not None else None

    @property
    def under_way(self) -> bool:
        return self._departure is not None and not self._departure.over

    def wait(self, timeout_s: float) -> bool:
        """A machine that has left is gone a moment before libvirt says how the move went."""
        return self._departure is None or self._departure.wait(timeout_s)

    def leave(
        self,
        vmi: VirtualMachineInstance,
        wishes: Wishes,
        tune_there: Callable[[Domain], CpuTune | None] = lambda _: None,
        paths: Paths | None = None,
    ) -> None:
        may = begin(wishes.uid, self._begun | self._given_up, self.under_way)
        if may is Begin.BUSY:
            raise WrongStateError("the machine is being moved already, by another job")
        if may is Begin.NEVER_AGAIN:
            return
        facts = self._require()
        domain, paths = from_xml(self._hypervisor.describe()), paths or Paths()
        plan = MovePlan(
            route=self._route(),
            disks=copied_disks(vmi, domain),
            bandwidth_mib=wishes.bandwidth_mib,
            parallel=wishes.parallel,
            auto_converge=wishes.auto_converge,
            post_copy=wishes.post_copy,
            unsafe=wishes.unsafe,
            paused=facts.state is State.PAUSED,
            tune=tune_there(domain),
            images=images_there(vmi, domain, str(paths.images)),
            places=places_there(vmi, domain, paths),
        )
        limits = watch.Limits(
            watch.completion_limit(wishes.completion_timeout_per_gib, size_bytes(vmi, domain)),
            wishes.progress_timeout,
            wishes.post_copy,
            wishes.workload_disruption,
        )
        onward = str(self._sockets / names.SOCKET_MOVE_LIBVIRT)
        wire = Wire(plan.route.libvirt, onward, self._stands_still, self._on_news)
        order = Order(wishes.uid, plan, limits, wishes.max_downtime_ms)
        self._departure = Departure(order, self._hypervisor, wire, self._kill, self._on_news)
        self._begun.add(wishes.uid)
        self._declined = None
        if words := hazard(domain, self._hypervisor.qemu_version()):
            self._on_remark("EmulatedMove", words)
        self._departure.begin()

    def cancel(self, uid: str) -> None:
        current = self._departure.view.uid if self._departure is not None and self.under_way else ""
        how = cancel(uid, self._begun, current)
        if how is Cancel.BUSY:
            raise WrongStateError(f"the machine is not being moved by the job {uid}, but by {current}")
        if how is not Cancel.DECLINE:
            self._of(uid).cancel()
            return
        self._given_up.add(uid)
        self._declined = declined(uid)
        self._on_news()

    def settle(self, uid: str, *, gone: bool) -> None:
        self._of(uid).settle(gone=gone)

    def _of(self, uid: str) -> Departure:
        if self._departure is None or self._departure.view.uid != uid:
            raise WrongStateError(f"the machine is not being moved by the job {uid}")
        return self._departure

    def _route(self) -> Route:
        return Route(
            libvirt=str(self._private / "move-wire"),
            memory=str(self._sockets / names.SOCKET_MOVE_MEMORY),
            disks=str(self._sockets / names.SOCKET_MOVE_DISKS),
        )

    def _stands_still(self) -> bool:
        try:
            facts = self._hypervisor.facts()
        except LauncherError:
            return True  # Nobody can say that it runs.
        return stands_still(facts)
