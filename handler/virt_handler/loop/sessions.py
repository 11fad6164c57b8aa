"""What this process knows about each launcher of its node, in memory. All of it can be found again after a restart."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from virt_core.apis import handoffs
from virt_core.apis.netplan import NetReport
from virt_core.apis.podnetworks import PRIMARY
from virt_core.apis.podroles import Role, recorded
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.clock import Clock
from virt_handler.decisions import vocabulary as words
from virt_handler.decisions.domains import bounded, bounded_needs, is_alive, newest
from virt_handler.decisions.hotplug import Mounts
from virt_handler.decisions.vocabulary import Task, View, Work
from virt_handler.loop.pulse import Pulse
from virt_handler.loop.rates import Rates, TokenBucket
from virt_handler.loop.records import GhostRecord
from virt_handler.pods.launchers import Launcher
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.node.v1 import node_pb2

_FIRST_RETRY_S = 0.5
_MAX_RETRY_S = 15.0
#: What a launcher may say of itself; other names are not its own.
_LAUNCHER_HANDOFFS = frozenset(
    {handoffs.LAUNCHER_READY.name, handoffs.DOMAIN_DEFINED.name, handoffs.GUEST_STARTED.name}
)


class Session:
    """One launcher Pod and its VMI, which may have others, here and elsewhere. Written by the loop and by callbacks, so
    every change takes the lock."""

    def __init__(self, record: GhostRecord, clock: Clock, rates: Rates | None = None) -> None:
        rates = rates or Rates()
        self.record, self.key = record, record.key
        self.vmi_uid, self.pod_uid = record.vmi_uid, record.pod_uid
        self.lock = threading.RLock()
        self.domain_rate = TokenBucket(clock, burst=rates.domain_burst, per_second=rates.domain_per_second)
        self.event_rate = TokenBucket(clock, burst=rates.event_burst, per_second=rates.event_per_second)
        self.pulse = Pulse(clock)
        #: What the Pod is to its VMI; None: not known yet, or nothing any more.
        self.role: Role | None = None
        self.launcher: Launcher | None = None
        self.socket_watch: int | None = None
        self.notify: Any = None
        self.closed = False
        self.refused = ""
        self.stale = False
        #: The guest's vsock address; 0: it has none.
        self.vsock_cid = 0
        self._clock = clock
        self._since = clock.now()
        self._gone = False
        self._sequence = 0
        self._version = 0
        self._domain: pb.Domain | None = None
        self._network, self._sync = Work(), Work()
        self._synced: pb.Synced | None = None
        self._prepared = Work()
        self._way: words.Way | None = None
        self._forecast_of = ""
        self._forecast: words.Foreseen | None = None
        self._disk_facts: dict[str, tuple[int, int]] | None = None
        self._looking = Work()
        self._report: NetReport | None = None
        self._failures = {"network": 0, "sync": 0, "prepare": 0, "look": 0}
        self._stop_started: datetime | None = None
        self._stop_sent: datetime | None = None
        self._kill_sent: datetime | None = None
        self._delete_sent = False
        self._handoffs: dict[str, datetime] = {}
        self._agent_since: datetime | None = None
        self._alive_since: datetime | None = None
        #: The hot-plugged volumes in the Pod; None: nobody has looked yet.
        self.mounts: Mounts | None = None
        self.dumps_refused: dict[str, str] = {}
        self.backups_refused: dict[str, str] = {}
        self._mount_at: datetime | None = None
        #: When a change of lesser weight was last written.
        self.told_at: datetime | None = None

    def follow(self, vmi: VirtualMachineInstance, node: str) -> None:
        """Takes from the VMI what the Pod is to it by now. A Pod that it has on another node is not this one."""
        known = recorded(vmi).get(self.pod_uid)
        with self.lock:
            self.role = known.role if known is not None and known.node == node else None
            self.vsock_cid = vmi.status.vsock_cid or 0

    def view(self, pod_exists: bool = True) -> View:
        with self.lock:
            return View(
                since=self._since,
                launcher=self._launcher_state(),
                refused=self.refused,
                pod_exists=pod_exists,
                domain=self._domain,
                network=self._network,
                report=self._report,
                sync=self._sync,
                synced=self._synced,
                stop_started=self._stop_started,
                stop_sent=self._stop_sent,
                kill_sent=self._kill_sent,
                delete_sent=self._delete_sent,
                grace_s=self.record.grace_seconds,
                handoffs=dict(self._handoffs),
                agent_since=self._agent_since,
                alive_since=self._alive_since,
                mounts=self.mounts,
                dumps_refused=dict(self.dumps_refused),
                backups_refused=dict(self.backups_refused),
                prepared=self._prepared,
                way=self._way,
                foreseen=self._forecast,
                disk_facts=self._disk_facts,
                looking=self._looking,
                pulse=self.pulse.verdict(),
                silent_s=self.pulse.silent_s(),
            )

    def _launcher_state(self) -> words.Launcher:
        if self._gone:
            return words.Launcher.GONE
        return words.Launcher.WAITING if self.launcher is None else words.Launcher.READY

    # The launcher

    def attached(self, launcher: Launcher) -> None:
        self.pulse.beat()
        with self.lock:
            self.launcher = launcher
            self._handoffs.setdefault(handoffs.LAUNCHER_READY.name, self._clock.now())

    def launcher_gone(self) -> None:
        with self.lock:
            self._gone = True

    @property
    def is_gone(self) -> bool:
        return self._gone

    # The machine

    def version(self) -> int:
        """Changes with every news of the machine: an answer that is older than the news is not taken."""
        with self.lock:
            return self._version

    def domain_told(self, domain: pb.Domain, sequence: int) -> bool:
        """From the launcher's own message. False: older than what we have. Whoever in the Pod sent it, it says nothing
        about whether the launcher still answers."""
        with self.lock:
            if sequence <= self._sequence:
                return False
            self._sequence = sequence
            self._set_domain(domain)
            return True

    def domain_read(self, domain: pb.Domain, version: int) -> None:
        """From an answer to a question that was asked when the session had that version."""
        self.pulse.beat()
        with self.lock:
            if version == self._version:
                self._set_domain(domain)

    def _set_domain(self, domain: pb.Domain) -> None:
        self._version += 1
        self._domain = newest(self._domain, bounded(domain))
        self._alive_since = (self._alive_since or self._clock.now()) if is_alive(self._domain) else None
        connected = self._domain is not None and self._domain.agent_connected
        self._agent_since = (self._agent_since or self._clock.now()) if connected else None

    # The network

    def network_started(self) -> None:
        with self.lock:
            self._network = Work(Task.RUNNING, started=self._clock.now())

    def network_done(self, report: NetReport, moment: datetime | None = None) -> None:
        with self.lock:
            self._report = report
            self._network = Work(Task.DONE)
            self._handoffs.setdefault(handoffs.NETWORK_READY.name, moment or self._clock.now())

    def network_failed(self, error: str, *, fatal: bool) -> None:
        with self.lock:
            self._network = self._failed("network", self._network, error, fatal)

    def pod_ips(self) -> list[str]:
        """The addresses of the Pod as the node set them up: those of its first interface, or of one that has any."""
        with self.lock:
            nics = self._report.interfaces if self._report is not None else []
            nics = sorted(nics, key=lambda nic: nic.pod_interface != PRIMARY)
            return next((list(nic.pod_ips) for nic in nics if nic.pod_ips), [])

    # Volumes

    def mounted(self, mounts: Mounts, pause_s: float) -> None:
        """What came of the last attempt, and how long the next has to wait."""
        with self.lock:
            self.mounts = mounts
            self._mount_at = self._clock.now() + timedelta(seconds=pause_s) if pause_s else None

    def dump_refused(self, file: str, why: str) -> None:
        """Only the last counts: a launcher writes one at a time."""
        with self.lock:
            self.dumps_refused = {file: why}

    def backup_refused(self, key: str, why: str) -> None:
        """Only the last counts, as above."""
        with self.lock:
            self.backups_refused = {key: why}

    def may_mount(self) -> bool:
        with self.lock:
            return self._mount_at is None or self._clock.now() >= self._mount_at

    # SyncVMI

    def synced_read(self, synced: pb.Synced) -> None:
        """From a launcher that we meet: what it was last asked for, by whatever process of ours."""
        with self.lock:
            self._synced = bounded_needs(synced)

    def sync_started(self, asked: str) -> None:
        with self.lock:
            # The first attempt counts for the deadlines.
            began = self._sync.started or self._clock.now()
            if asked != self._sync.asked:
                self._failures["sync"] = 0
            self._sync = Work(Task.RUNNING, error=self._sync.error, started=began, asked=asked)

    def sync_done(self, response: pb.SyncVMIResponse, version: int) -> None:
        with self.lock:
            # A launcher of an older release does not say what it did.
            told = response.synced if response.HasField("synced") else pb.Synced(digest=self._sync.asked)
            self._synced = bounded_needs(told)
            self._sync = Work(Task.DONE, started=self._sync.started, asked=self._sync.asked)
            self._failures["sync"] = 0
            for handoff in (each for each in response.handoffs if each.name in _LAUNCHER_HANDOFFS):
                self._handoffs.setdefault(handoff.name, _moment(handoff.time_us, self._clock.now()))
            self.domain_read(response.domain, version)

    def sync_failed(self, error: str, *, fatal: bool) -> None:
        with self.lock:
            # It may have been done in part, or whole if only the answer got lost: whatever is wanted next is synced.
            self._synced = pb.Synced(needs_restart=self._synced.needs_restart if self._synced is not None else ())
            self._sync = replace(self._failed("sync", self._sync, error, fatal), asked=self._sync.asked)

    def _failed(self, name: str, work: Work, error: str, fatal: bool) -> Work:
        delay = min(_FIRST_RETRY_S * 2 ** self._failures[name], _MAX_RETRY_S)
        self._failures[name] += 1
        retry_at = self._clock.now() + timedelta(seconds=delay)
        return Work(Task.FAILED, error=error, fatal=fatal, started=work.started, retry_at=retry_at)

    # A move to this side

    def may_forecast(self, job: str) -> bool:
        """True for the first time, of each job."""
        with self.lock:
            first = self._forecast_of != job
            if first:
                self._forecast_of, self._forecast = job, None
            return first

    def foreseen(self, job: str, found: node_pb2.ForecastMoveResponse) -> None:
        with self.lock:
            if self._forecast_of == job:
                self._forecast = words.Foreseen(job, found.convergence, found.message)

    def prepare_started(self) -> None:
        with self.lock:
            self._prepared = Work(Task.RUNNING, started=self._clock.now())

    def prepare_done(self, way: words.Way) -> None:
        with self.lock:
            self._way, self._prepared = way, Work(Task.DONE)

    def way_over(self, job: str) -> None:
        with self.lock:
            if self._way is not None and self._way.job == job:
                self._way = replace(self._way, over=True)

    def prepare_failed(self, error: str, *, fatal: bool) -> None:
        with self.lock:
            self._prepared = self._failed("prepare", self._prepared, error, fatal)

    # A move from this side

    def look_started(self, job: str) -> None:
        with self.lock:
            self._looking = Work(Task.RUNNING, started=self._clock.now(), asked=job)

    def look_done(self, facts: dict[str, tuple[int, int]]) -> None:
        with self.lock:
            self._disk_facts, self._looking = facts, Work(Task.DONE, asked=self._looking.asked)

    def look_failed(self, error: str, *, fatal: bool) -> None:
        with self.lock:
            self._looking = replace(self._failed("look", self._looking, error, fatal), asked=self._looking.asked)

    # The end

    def shutdown_sent(self) -> bool:
        """True for the first time."""
        with self.lock:
            first = self._stop_started is None
            self._stop_sent = self._clock.now()
            self._stop_started = self._stop_started or self._stop_sent
            return first

    def kill_sent(self) -> bool:
        """True for the first time."""
        with self.lock:
            first = self._kill_sent is None
            self._kill_sent = self._clock.now()
            self._stop_started = self._stop_started or self._kill_sent
            return first

    def delete_sent(self) -> None:
        with self.lock:
            self._delete_sent = True

    def runs(self) -> bool:
        with self.lock:
            return is_alive(self._domain) and not self._gone


def _moment(time_us: int, now: datetime) -> datetime:
    """A launcher's clock is the node's; what lies far off it is not believed."""
    try:
        moment = datetime.fromtimestamp(time_us / 1e6, now.tzinfo)
    except (OverflowError, OSError, ValueError):
        return now
    return moment if abs((now - moment).total_seconds()) < 3600 else now
