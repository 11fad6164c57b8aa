"""A hypervisor in memory: the same protocol as libvirt_door, and the same contract test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from virt_launcher.domain.codec import from_element, slots_of
from virt_launcher.domain.domain import Devices, Domain, from_xml, to_xml
from virt_launcher.errors import AbortedError, LauncherError, NoMachineError, UnavailableError, WrongStateError
from virt_launcher.hypervisor.ports import (
    ALIVE,
    AgentFilesystem,
    AgentInfo,
    AgentReport,
    AgentUser,
    BackupEnd,
    Change,
    Facts,
    GuestExit,
    JobFigures,
    Measurement,
    SevInfo,
    State,
)
from virt_launcher.moves.plan import MovePlan


class FakeHypervisor:
    """Tests may set what the next calls do: `broken` (no daemon), `refuses` (start fails), `report` (the agent)."""

    def __init__(self, domain_name: str) -> None:
        self._name = domain_name
        self._lock = threading.RLock()
        self._domain: Domain | None = None
        self._state, self._reason = State.SHUTOFF, "Unknown"
        self._watchers: list[Callable[[Change], None]] = []
        self.calls: list[str] = []
        self.broken = False
        self.refuses = ""
        self.report: AgentReport | None = None
        self.errors: dict[str, str] = {}
        #: What the guest sees of its disks; one without an entry is as large as can be.
        self.disk_sizes: dict[str, int] = {}
        #: What a dump of the memory does with its file.
        self.dump: Callable[[str], None] = lambda path: None
        #: What the machine went on from.
        self.restored = b""
        self.aborted = threading.Event()
        #: Checkpoints that libvirt knows, those whose bitmaps are there, and what a backup does with its XML.
        self.known_checkpoints: list[str] = []
        self.bitmaps: set[str] = set()
        self.backup: Callable[[str], None] = lambda xml: None
        self.backup_result: BackupEnd | None = BackupEnd()
        #: How fast the guest changes its memory; measured once it was asked for.
        self.dirty_mib = 0
        self.dirty: dict[str, int] = {}
        #: What libvirt says when the device with this alias is to change.
        self.device_errors: dict[str, str] = {}
        self.screen = b"P6\n2 1\n255\n\xff\x00\x00\x00\x00\xff"
        self.agent = AgentInfo("7.2")
        self.frozen = False
        self.users: tuple[AgentUser, ...] = ()
        self.filesystems: tuple[AgentFilesystem, ...] = ()
        #: How the commands in the guest end; one that has no entry runs for ever.
        self.exits: dict[str, GuestExit] = {}
        self._started: list[str] = []
        self.guest_time = 0
        self.ssh_keys: dict[str, tuple[str, ...]] = {}
        self.passwords: dict[str, str] = {}
        self.no_users: set[str] = set()
        #: None: the processor has no SEV.
        self.sev: SevInfo | None = None
        #: What a move shows; it lasts until `finish_move`.
        self.figures: JobFigures | None = None
        self.move_error: LauncherError | None = None
        self._move = threading.Event()
        self.measured = Measurement("measured", 1, 55, 7, 3)

    # -- the protocol ----------------------------------------------------------------------------------------------

    def version(self) -> int:
        return 9_000_000

    def qemu_version(self) -> int:
        return 7_002_022

    def define(self, xml: str) -> None:
        with self._called("define"):
            domain = from_xml(xml)
            if domain.name != self._name:
                raise LauncherError(f"{domain.name!r} is not {self._name!r}")
            self._domain = domain

    def start(self, *, paused: bool = False) -> None:
        with self._called("start"):
            if self._required().state in ALIVE:
                raise WrongStateError("domain is already running")
            if self.refuses:
                raise LauncherError(self.refuses)
            self._become(State.PAUSED if paused else State.RUNNING, "User" if paused else "")

    def facts(self) -> Facts | None:
        with self._called("facts"):
            uuid = self._domain.uuid or "" if self._domain is not None else ""
            return None if self._domain is None else Facts(self._state, self._reason, uuid)

    def describe(self) -> str:
        with self._called("describe"):
            self._required()
            assert self._domain is not None
            shown = from_xml(to_xml(self._domain))
            if shown.memory is not None:
                shown.memory.unit, shown.memory.value = "KiB", (shown.memory.value or 0) // 1024
            for channel in shown.devices.channels:
                channel.target_state = "connected" if self.report is not None else "disconnected"
            return to_xml(shown)

    def suspend(self) -> None:
        self._switch("suspend", State.PAUSED, "User")

    def resume(self) -> None:
        self._switch("resume", State.RUNNING, "")

    def shutdown(self) -> None:
        with self._called("shutdown"):
            self._alive()

    def destroy(self) -> None:
        self._switch("destroy", State.SHUTOFF, "Destroyed")

    def undefine(self) -> None:
        with self._called("undefine"):
            self._required()
            self._domain = None
        self._tell(Change.LIFECYCLE)

    def attach_device(self, xml: str) -> None:
        with self._device("attach_device", xml) as (listed, device):
            listed.append(device)

    def update_device(self, xml: str) -> None:
        with self._device("update_device", xml) as (listed, device):
            listed[:] = [device if known.alias == device.alias else known for known in listed]

    def detach_device(self, alias: str, deadline_s: float) -> None:
        with self._called(f"detach_device {alias}"):
            self._alive()
            assert self._domain is not None
            if alias in self.device_errors:
                raise LauncherError(f"{self.device_errors[alias]} within {deadline_s:.0f} s")
            devices = self._domain.devices
            devices.disks = [disk for disk in devices.disks if disk.alias != alias]
            devices.interfaces = [nic for nic in devices.interfaces if nic.alias != alias]
            devices.hostdevs = [device for device in devices.hostdevs if device.alias != alias]

    def set_processors(self, count: int) -> None:
        with self._called(f"set_processors {count}"):
            self._alive()
            assert self._domain is not None
            assert self._domain.vcpu is not None
            if count > (self._domain.vcpu.value or 0):
                raise LauncherError("requested vcpus is greater than max allowable vcpus for the live domain")
            self._domain.vcpu.current = count

    def stats(self) -> dict[str, Any]:
        with self._called("stats"):
            return {"cpu.time": 1, **self.dirty} if self._state in ALIVE else {}

    def disk_size(self, target: str) -> int:
        with self._called(f"disk_size {target}"):
            self._alive()
            return self.disk_sizes.get(target, 1 << 62)

    def resize_disk(self, target: str, size: int) -> None:
        with self._called(f"resize_disk {target} {size}"):
            self._alive()
            self.disk_sizes[target] = size

    def dump_memory(self, path: str) -> None:
        with self._called("dump_memory"):
            self._alive()
        self.dump(path)

    def save_state(self, path: str) -> None:
        with self._called("save_state"):
            self._alive()
            if self._state is not State.PAUSED:
                raise WrongStateError("domain is not paused")
        self.dump(path)

    def restore(self, path: str) -> None:
        with self._called("restore"):
            if self._required().state in ALIVE:
                raise WrongStateError("domain is already running")
            if self.refuses:
                raise LauncherError(self.refuses)
            self.restored = Path(path).read_bytes()
            self._become(State.PAUSED, "User")

    def checkpoints(self) -> tuple[str, ...]:
        with self._called("checkpoints"):
            self._alive()
            return tuple(self.known_checkpoints)

    def redefine_checkpoint(self, xml: str) -> None:
        name = ET.fromstring(xml).findtext("name") or ""
        with self._called(f"redefine_checkpoint {name}"):
            self._alive()
            if name not in self.bitmaps:
                raise LauncherError(f"bitmap '{name}' is missing or broken")
            self.known_checkpoints.append(name)

    def delete_checkpoint(self, name: str, *, forget: bool = False) -> None:
        with self._called(f"{'forget' if forget else 'delete'}_checkpoint {name}"):
            self._alive()
            self.known_checkpoints.remove(name)
            if not forget:
                self.bitmaps.discard(name)

    def begin_backup(self, backup: str, checkpoint: str) -> None:
        name = ET.fromstring(checkpoint).findtext("name") or "" if checkpoint else ""
        with self._called("begin_backup"):
            self._alive()
            self.backup(backup)
            self.known_checkpoints += [name] if name else []
            self.bitmaps |= {name} if name else set()

    def backup_end(self) -> BackupEnd | None:
        with self._called("backup_end"):
            self._alive()
            if self.backup_result is None and self.aborted.is_set():
                return BackupEnd("the backup was aborted", aborted=True)
            return self.backup_result

    def start_dirty_rate(self, seconds: int) -> None:
        with self._called(f"start_dirty_rate {seconds}"):
            self._alive()
            self.dirty = {"dirtyrate.calc_status": 2, "dirtyrate.megabytes_per_second": self.dirty_mib}

    def disk_errors(self) -> dict[str, str]:
        return self.errors

    def agent_report(self) -> AgentReport:
        with self._called("agent_report"):
            if self.report is None:
                raise WrongStateError("guest agent is not connected")
            return self.report

    def agent_info(self) -> AgentInfo:
        return self.agent

    def ping_agent(self, timeout_s: float) -> None:
        with self._called("ping_agent"):
            if self.report is None:
                raise WrongStateError(f"guest agent is not connected after {timeout_s:g} s")

    def set_guest_time(self, nanoseconds: int) -> None:
        with self._called("set_guest_time"):
            self._alive()
            if self.report is None:
                raise WrongStateError("guest agent is not connected")
            self.guest_time = nanoseconds

    def set_ssh_keys(self, user: str, keys: Sequence[str]) -> None:
        self._in_guest(user, f"set_ssh_keys {user} {len(keys)}")
        self.ssh_keys[user] = tuple(keys)

    def set_password(self, user: str, password: str) -> None:
        self._in_guest(user, f"set_password {user}")
        self.passwords[user] = password

    def _in_guest(self, user: str, call: str) -> None:
        with self._called(call):
            self._alive()
            if user in self.no_users:
                raise LauncherError(f"no user {user}")

    def start_in_guest(self, path: str, arguments: Sequence[str]) -> int:
        with self._called(" ".join(("start_in_guest", path, *arguments))):
            self._alive()
            self._started.append(path)
            return len(self._started) - 1

    def exit_in_guest(self, number: int) -> GuestExit | None:
        with self._called("exit_in_guest"):
            return self.exits.get(self._started[number])

    def reboot(self) -> None:
        with self._called("reboot"):
            self._alive()

    def reset(self) -> None:
        with self._called("reset"):
            self._alive()

    def is_frozen(self) -> bool:
        self._ask_agent("is_frozen")
        return self.frozen

    def freeze(self) -> None:
        self._ask_agent("freeze")
        if self.frozen:
            raise LauncherError("Command guest-fsfreeze-freeze has been disabled: the agent is in frozen state")
        self.frozen = True

    def thaw(self) -> None:
        self._ask_agent("thaw")
        self.frozen = False

    def screenshot(self, receive: Callable[[bytes], None]) -> None:
        with self._called("screenshot"):
            self._alive()
            for start in range(0, len(self.screen), 5):
                receive(self.screen[start : start + 5])

    def agent_users(self) -> tuple[AgentUser, ...]:
        self._ask_agent("agent_users")
        return self.users

    def agent_filesystems(self) -> tuple[AgentFilesystem, ...]:
        self._ask_agent("agent_filesystems")
        return self.filesystems

    def sev_info(self) -> SevInfo:
        with self._called("sev_info"):
            if self.sev is None:
                raise WrongStateError("this node has no SEV")
            return self.sev

    def launch_measurement(self) -> Measurement:
        with self._called("launch_measurement"):
            self._alive()
            self.sev_info()
            return self.measured

    def inject_secret(self, header: str, secret: str) -> None:
        with self._called(f"inject_secret {header} {secret}"):
            self._alive()
            self.sev_info()

    def migrate(self, plan: MovePlan) -> None:
        self.calls.append("migrate")
        self.figures = self.figures or JobFigures(total=100, remaining=100)
        self._move.wait(10)
        if self.move_error is not None:
            raise self.move_error
        with self._lock:
            self._state, self._reason = State.SHUTOFF, "Migrated"

    def finish_split(self, plan: MovePlan) -> None:
        self.calls.append("finish_split")
        self.becomes(State.SHUTOFF, "Migrated")

    def finish_move(self, error: LauncherError | None = None) -> None:
        self.move_error = error
        self._move.set()

    def job(self) -> JobFigures | None:
        return None if self._move.is_set() else self.figures

    def last_job(self) -> JobFigures | None:
        return self.figures

    def abort_job(self) -> None:
        self.calls.append("abort_job")
        self.aborted.set()
        self.finish_move(AbortedError("aborted"))

    def start_post_copy(self) -> None:
        self.calls.append("start_post_copy")

    def allow_downtime(self, milliseconds: int) -> None:
        self.calls.append(f"allow_downtime {milliseconds}")

    def watch(self, watcher: Callable[[Change], None]) -> None:
        self._watchers.append(watcher)

    # -- what tests do to it ---------------------------------------------------------------------------------------

    def becomes(self, state: State, reason: str = "") -> None:
        """The machine changes by itself."""
        with self._lock:
            self._become(state, reason)

    def panics(self) -> None:
        with self._lock:
            self._state, self._reason = State.SHUTOFF, "Crashed"
            self._tell(Change.PANIC)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _called(self, name: str) -> AbstractContextManager[object]:
        if self.broken:
            raise UnavailableError("there is no connection to libvirt now")
        self.calls.append(name)
        return self._lock

    @contextmanager
    def _device(self, command: str, xml: str) -> Iterator[tuple[list[Any], Any]]:
        """The list that the device belongs to, and the device itself."""
        with self._called(f"{command} {xml}"):
            self._alive()
            assert self._domain is not None
            element = ET.fromstring(xml)
            slot = next(slot for slot in slots_of(Devices) if slot.place.leaf == element.tag)
            device: Any = from_element(element, slot.kind)
            if (alias := getattr(device, "alias", None) or "") in self.device_errors:
                raise LauncherError(self.device_errors[alias])
            yield getattr(self._domain.devices, slot.name), device

    def _required(self) -> Facts:
        if self._domain is None:
            raise NoMachineError(f"there is no machine {self._name}")
        return Facts(self._state, self._reason)

    def _ask_agent(self, name: str) -> None:
        with self._called(name):
            self._alive()
            if self.report is None:
                raise WrongStateError("guest agent is not connected")

    def _alive(self) -> None:
        if self._required().state not in ALIVE:
            raise WrongStateError("domain is not running")

    def _switch(self, name: str, state: State, reason: str) -> None:
        with self._called(name):
            self._alive()
            self._become(state, reason)

    def _become(self, state: State, reason: str) -> None:
        self._state, self._reason = state, reason
        self._tell(Change.LIFECYCLE)

    def _tell(self, change: Change) -> None:
        for watcher in self._watchers:
            watcher(change)
