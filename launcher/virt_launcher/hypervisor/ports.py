"""What the launcher asks of a hypervisor.

Libvirt_door speaks it for real, fake.py in tests; one contract test runs on both.

A launcher has exactly one machine, so no method names it. Methods may raise the errors of virt_launcher.errors.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from virt_core.runtime.record import record

if TYPE_CHECKING:
    from virt_launcher.moves.plan import MovePlan


class State(enum.Enum):
    ABSENT = "Absent"
    RUNNING = "Running"
    BLOCKED = "Blocked"
    PAUSED = "Paused"
    SHUTTING_DOWN = "ShuttingDown"
    SHUTOFF = "Shutoff"
    CRASHED = "Crashed"
    PM_SUSPENDED = "PMSuspended"


#: States in which a QEMU process exists.
ALIVE = frozenset({State.RUNNING, State.BLOCKED, State.PAUSED, State.SHUTTING_DOWN, State.PM_SUSPENDED})
#: States of a guest that has all that it needs to run.
RUNS = ALIVE - {State.PAUSED, State.SHUTTING_DOWN}


class Change(enum.Enum):
    """Why a watcher is called. Only a hint: the watcher reads the whole state."""

    LIFECYCLE = "lifecycle"
    PANIC = "panic"
    WATCHDOG = "watchdog"
    WATCHDOG_END = "watchdog-end"
    AGENT = "agent"
    MEMORY = "memory"
    RECONNECTED = "reconnected"


@record(frozen=True, slots=True)
class Facts:
    """The machine as libvirt knows it now."""

    state: State
    reason: str = ""
    uuid: str = ""


@record(frozen=True, slots=True)
class AgentInterface:
    name: str
    mac: str = ""
    addresses: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class AgentReport:
    """What the guest agent says, still unbounded; guest_agent.py cuts it to size."""

    os: dict[str, str] = field(default_factory=dict)
    hostname: str = ""
    timezone: str = ""
    interfaces: tuple[AgentInterface, ...] = ()


@record(frozen=True, slots=True)
class AgentInfo:
    """What the agent says about itself."""

    version: str = ""
    commands: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class AgentUser:
    name: str
    domain: str = ""
    login_time: float = 0.0


@record(frozen=True, slots=True)
class AgentFilesystem:
    disk_name: str
    mount_point: str = ""
    type: str = ""
    used_bytes: int = 0
    total_bytes: int = 0
    #: Serial number and bus of each disk below it.
    disks: tuple[tuple[str, str], ...] = ()


@record(frozen=True, slots=True)
class GuestExit:
    """How a command in the guest ended; a signal that killed it counts as in a shell. Both outputs in one text."""

    exit_code: int
    output: str = ""


@record(frozen=True, slots=True)
class SevInfo:
    """What the processor shows to those who shall trust it; base64."""

    pdh: str
    cert_chain: str


@record(frozen=True, slots=True)
class Measurement:
    """What the processor measured when it loaded the guest."""

    measurement: str
    api_major: int
    api_minor: int
    build_id: int
    policy: int


@record(frozen=True, slots=True)
class JobFigures:
    """How far a move is, in bytes and bytes a second."""

    total: int = 0
    processed: int = 0
    remaining: int = 0
    rate: int = 0
    dirty_rate: int = 0
    iteration: int = 0
    downtime_ms: int = 0


@record(frozen=True, slots=True)
class BackupEnd:
    """How a backup went; `failure` is empty when all of it is there."""

    failure: str = ""
    aborted: bool = False


class Hypervisor(Protocol):
    def version(self) -> int:
        """libvirt's, as 9000000 for 9.0.0."""
        ...

    def qemu_version(self) -> int:
        """As libvirt writes it: major * 1,000,000 + minor * 1,000 + release."""

    def define(self, xml: str) -> None: ...

    def start(self, *, paused: bool = False) -> None: ...

    def facts(self) -> Facts | None:
        """None when no machine is defined."""
        ...

    def describe(self) -> str:
        """The domain XML, live when the machine runs."""
        ...

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def shutdown(self) -> None:
        """Presses the power button."""
        ...

    def destroy(self) -> None: ...

    def undefine(self) -> None: ...

    def attach_device(self, xml: str) -> None:
        """Like all three, of the running machine: it is never started again from its definition."""
        ...

    def update_device(self, xml: str) -> None: ...

    def detach_device(self, alias: str, deadline_s: float) -> None:
        """Returns when the guest has let the device go, or at once when there is none. LauncherError after that."""
        ...

    def set_processors(self, count: int) -> None:
        """More than the running machine has, and no more than it was started with room for."""
        ...

    def stats(self) -> dict[str, Any]:
        """libvirt's bulk statistics under their own names, e.g. `cpu.time`; empty when nothing runs."""
        ...

    def disk_errors(self) -> dict[str, str]: ...

    def disk_size(self, target: str) -> int:
        """What the guest sees of it, in bytes."""
        ...

    def resize_disk(self, target: str, size: int) -> None: ...

    def dump_memory(self, path: str) -> None:
        """Writes the guest's memory into a file, as an ELF core. Returns when that is done."""
        ...

    def save_state(self, path: str) -> None:
        """Writes memory and devices of a machine that stands still into a file. It stands still afterwards, too."""
        ...

    def restore(self, path: str) -> None:
        """Instead of `start`: the defined machine, with memory and devices out of such a file. It stands still."""
        ...

    def checkpoints(self) -> tuple[str, ...]:
        """The names of those that libvirt knows of the running machine."""
        ...

    def redefine_checkpoint(self, xml: str) -> None:
        """Tells libvirt of one that a former machine made. LauncherError when its bitmaps are not there, or broken."""
        ...

    def delete_checkpoint(self, name: str, *, forget: bool = False) -> None:
        """With its bitmaps; `forget`: they stay, and only libvirt knows of it no more."""
        ...

    def begin_backup(self, backup: str, checkpoint: str) -> None:
        """Begins to write into files that are there; without a checkpoint if that is empty. Returns when the instant
        that is saved has passed."""
        ...

    def backup_end(self) -> BackupEnd | None:
        """None while it is written."""
        ...

    def start_dirty_rate(self, seconds: int) -> None:
        """Begins to measure how fast the guest changes its memory; `stats` has the outcome (`dirtyrate.…`)."""
        ...

    def agent_report(self) -> AgentReport: ...

    def agent_info(self) -> AgentInfo: ...

    def reboot(self) -> None:
        """Asks the guest to start anew: by its agent, else by the power button."""
        ...

    def reset(self) -> None:
        """Without asking."""
        ...

    def is_frozen(self) -> bool:
        """Whether the guest's filesystems stand still, as its agent says."""
        ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def screenshot(self, receive: Callable[[bytes], None]) -> None:
        """Hands the picture over piece by piece, as PNG or PPM."""
        ...

    def agent_users(self) -> tuple[AgentUser, ...]: ...

    def agent_filesystems(self) -> tuple[AgentFilesystem, ...]: ...

    def ping_agent(self, timeout_s: float) -> None: ...

    def start_in_guest(self, path: str, arguments: Sequence[str]) -> int:
        """By the agent. The number by which the command is asked for."""
        ...

    def exit_in_guest(self, number: int) -> GuestExit | None:
        """None while it runs. The agent tells it once."""
        ...

    def set_guest_time(self, nanoseconds: int) -> None:
        """By the agent, since 1970."""
        ...

    def set_ssh_keys(self, user: str, keys: Sequence[str]) -> None:
        """By the agent: these and no others."""
        ...

    def set_password(self, user: str, password: str) -> None: ...

    def sev_info(self) -> SevInfo:
        """WrongStateError where the processor has no SEV."""
        ...

    def launch_measurement(self) -> Measurement: ...

    def inject_secret(self, header: str, secret: str) -> None: ...

    def migrate(self, plan: MovePlan) -> None:
        """Returns when the machine has left. Whatever is raised, it is still here; AbortedError: it was given up."""
        ...

    def finish_split(self, plan: MovePlan) -> None:
        """After `migrate` lost the other side in post-copy: sends what is still here. As `migrate`."""
        ...

    def job(self) -> JobFigures | None:
        """Of the move that is under way; None: there is none."""
        ...

    def last_job(self) -> JobFigures | None:
        """Of the move that is over."""
        ...

    def abort_job(self) -> None:
        """Ends what takes long, a move or a dump: whoever waits for it gets an error."""
        ...

    def start_post_copy(self) -> None: ...

    def allow_downtime(self, milliseconds: int) -> None: ...

    def watch(self, watcher: Callable[[Change], None]) -> None:
        """Calls `watcher` on every change, from libvirt's own thread: it must not block."""
        ...
