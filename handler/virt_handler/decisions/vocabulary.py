"""The words in which the loop speaks: what the node knows about a VMI (View), and what is to be done (Step)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from virt_core.apis import names
from virt_core.apis.handoffs import HandoffKind
from virt_core.apis.netplan import NetReport
from virt_core.apis.topology import Cpu
from virt_handler.decisions.domains import End
from virt_handler.decisions.hotplug import Mounts
from virt_handler.decisions.silence import Verdict
from virt_protos.launcher.v1 import launcher_pb2 as pb


class Launcher(Enum):
    WAITING = "waiting"
    READY = "ready"
    GONE = "gone"


class Task(Enum):
    """A piece of work that runs beside the loop: the network set-up, SyncVMI."""

    IDLE = "idle"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Action(Enum):
    NOTHING = "nothing"
    WIRE_NETWORK = "wire-network"
    SYNC = "sync"
    SHUTDOWN = "shutdown"
    KILL = "kill"
    DELETE = "delete"
    END_LAUNCHER = "end-launcher"
    CLEAN_UP = "clean-up"
    #: Of a move: make the target ready; find out what it must know of the disks; begin it; give it up; say what became
    #: of a machine that is held.
    PREPARE_TARGET = "prepare-target"
    DISK_FACTS = "disk-facts"
    MIGRATE = "migrate"
    CANCEL_MOVE = "cancel-move"
    SETTLE_STAYS = "settle-stays"
    SETTLE_GONE = "settle-gone"


@dataclass(frozen=True, slots=True)
class Work:
    """How a Task stands."""

    task: Task = Task.IDLE
    error: str = ""
    #: Trying again is pointless.
    fatal: bool = False
    started: datetime | None = None
    #: When the next attempt is due.
    retry_at: datetime | None = None
    #: The digest of what is asked for, or was.
    asked: str = ""

    def due(self, now: datetime) -> bool:
        return self.task is Task.IDLE or (self.task is Task.FAILED and (self.retry_at is None or now >= self.retry_at))


@dataclass(frozen=True, slots=True)
class Way:
    """Where the other node reaches this one for a move: a port for each channel."""

    job: str
    address: str
    ports: Mapping[str, int] = field(default_factory=dict)
    #: The CPUs that the Pod here has to itself.
    cpus: tuple[Cpu, ...] = ()
    #: The other side came through it and is gone again.
    over: bool = False


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a move was said to take, before it began."""

    job: str
    #: node/v1: Convergence.
    convergence: int
    message: str


@dataclass(frozen=True, slots=True)
class View:
    """All that this node knows about one launcher Pod of a VMI."""

    since: datetime
    launcher: Launcher = Launcher.WAITING
    #: Why what was found in the launcher's place is not our launcher.
    refused: str = ""
    pod_exists: bool = True
    domain: pb.Domain | None = None
    network: Work = field(default_factory=Work)
    report: NetReport | None = None
    sync: Work = field(default_factory=Work)
    #: What the machine was last brought in line with; None: nobody has said so yet.
    synced: pb.Synced | None = None
    stop_started: datetime | None = None
    stop_sent: datetime | None = None
    kill_sent: datetime | None = None
    delete_sent: bool = False
    #: The grace of a VMI whose object is gone, from the ghost record.
    grace_s: int = names.DEFAULT_GRACE_PERIOD_S
    #: Times of the handoffs that happened on this node, by name.
    handoffs: dict[str, datetime] = field(default_factory=dict)
    agent_since: datetime | None = None
    alive_since: datetime | None = None
    #: The hot-plugged volumes in the Pod; None: nobody has looked yet.
    mounts: Mounts | None = None
    #: Why the launcher began no memory dump, by file.
    dumps_refused: dict[str, str] = field(default_factory=dict)
    #: Likewise no backup, by its name and start.
    backups_refused: dict[str, str] = field(default_factory=dict)
    #: How far a target is made ready, and the way to it once it is open.
    prepared: Work = field(default_factory=Work)
    way: Way | None = None
    foreseen: Foreseen | None = None
    #: On the side that a machine leaves: checksum and size of its disks, by volume; None: nobody has looked yet.
    disk_facts: Mapping[str, tuple[int, int]] | None = None
    #: How the look at them goes.
    looking: Work = field(default_factory=Work)
    #: Whether the launcher answers, and for how long it has not.
    pulse: Verdict = Verdict.FINE
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    action: Action = Action.NOTHING
    #: Report nothing: it is too early, or not this side's to say.
    hold: bool = False
    #: The VMI is over, for this reason.
    end: End | None = None
    overdue: HandoffKind | None = None
    recheck_s: float | None = None
