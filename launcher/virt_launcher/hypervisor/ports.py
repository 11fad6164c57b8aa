"""What the launcher asks of a hypervisor.

Libvirt_door speaks it for real, fake.py in tests; one contract test runs on both.

A launcher has exactly one machine, so no method names it. Methods may raise the errors of virt_launcher.errors.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


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


class Change(enum.Enum):
    """Why a watcher is called. Only a hint: the watcher reads the whole state."""

    LIFECYCLE = "lifecycle"
    PANIC = "panic"
    AGENT = "agent"
    RECONNECTED = "reconnected"


@dataclass(frozen=True, slots=True)
class Facts:
    """The machine as libvirt knows it now."""

    state: State
    reason: str = ""
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class AgentInterface:
    name: str
    mac: str = ""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What the guest agent says, still unbounded; guest_agent.py cuts it to size."""

    os: dict[str, str] = field(default_factory=dict)
    hostname: str = ""
    timezone: str = ""
    interfaces: tuple[AgentInterface, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """What the agent says about itself."""

    version: str = ""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentUser:
    name: str
    domain: str = ""
    login_time: float = 0.0


@dataclass(frozen=True, slots=True)
class AgentFilesystem:
    disk_name: str
    mount_point: str = ""
    type: str = ""
    used_bytes: int = 0
    total_bytes: int = 0
    #: Serial number and bus of each disk below it.
    disks: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class GuestExit:
    """How a command in the guest ended; a signal that killed it counts as in a shell. Both outputs in one text."""

    exit_code: int
    output: str = ""


@dataclass(frozen=True, slots=True)
class SevInfo:
    """What the processor shows to those who shall trust it; base64."""

    pdh: str
    cert_chain: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the processor measured when it loaded the guest."""

    measurement: str
    api_major: int
    api_minor: int
    build_id: int
    policy: int


class Hypervisor(Protocol):
    def version(self) -> int:
        """libvirt's, as 9000000 for 9.0.0."""
        ...

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

    def stats(self) -> dict[str, Any]:
        """libvirt's bulk statistics under their own names, e.g. `cpu.time`; empty when nothing runs."""
        ...

    def disk_errors(self) -> dict[str, str]: ...

    def agent_report(self) -> AgentReport: ...

    def agent_info(self) -> AgentInfo: ...

    def reboot(self) -> None:
        """Asks the guest to start anew: by its agent, else by the power button."""
        ...

    def reset(self) -> None:
        """Without asking."""
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

    def watch(self, watcher: Callable[[Change], None]) -> None:
        """Calls `watcher` on every change, from libvirt's own thread: it must not block."""
        ...
