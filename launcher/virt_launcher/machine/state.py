"""The machine as virt-handler sees it, composed from what libvirt, the guest agent and QEMU's own end tell. Pure."""

from __future__ import annotations

import socket
from dataclasses import field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from virt_core.apis import names
from virt_core.apis.arrival import is_whole
from virt_core.runtime.record import record
from virt_launcher.convert.consoles import AGENT_CHANNEL
from virt_launcher.domain.disks import Disk
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import Amount
from virt_launcher.hypervisor.ports import ALIVE, RUNS, AgentInfo, AgentInterface, AgentReport, Facts, State

if TYPE_CHECKING:
    from virt_launcher.converge.changes import NeedsRestart
    from virt_launcher.machine.backup import Backup
    from virt_launcher.machine.life_signs import Silence
    from virt_launcher.machine.memory_dump import Dump

_KIB = 1024
_GOOD_ENDS = frozenset({"Shutdown", "Destroyed", "Migrated", "Saved", "FromSnapshot"})
#: Interfaces that only the guest knows are shown, but only so many: the VMI's status must not grow with a guest's whim.
MAX_GUEST_ONLY = 16


@record(frozen=True, slots=True)
class InterfaceView:
    name: str = ""
    mac: str = ""
    guest_name: str = ""
    addresses: tuple[str, ...] = ()
    from_domain: bool = False
    from_agent: bool = False
    link_state: str = ""


@record(frozen=True, slots=True)
class AgentView:
    """What the guest agent said last; `connected` once it has been asked."""

    connected: bool = False
    report: AgentReport = field(default_factory=AgentReport)
    about: AgentInfo = field(default_factory=AgentInfo)
    #: It sent what libvirt does not take, and is asked no more until it opens its channel anew.
    given_up: bool = False


@record(frozen=True, slots=True)
class Synced:
    """What virt-handler asked for last, by its own name for it, and what of that waits for a restart."""

    digest: str = ""
    needs_restart: tuple[NeedsRestart, ...] = ()


@record(frozen=True, slots=True)
class CredentialsView:
    """Whether the guest has what the Secrets say; None in its place: nothing was tried yet."""

    synced: bool
    message: str = ""


@record(frozen=True, slots=True, kw_only=True)
class MoveView:
    """How the move of this machine to another launcher goes, or went."""

    uid: str
    mode: str = ""
    started_us: int = 0
    ended_us: int = 0
    failed: bool = False
    reason: str = ""
    abort: str = ""
    total_bytes: int = 0
    processed_bytes: int = 0
    remaining_bytes: int = 0
    bytes_per_second: int = 0
    dirty_bytes_per_second: int = 0
    downtime_ms: int = 0
    iteration: int = 0
    #: Stands still until somebody says what became of it on the other side.
    held: bool = False


@record(frozen=True, slots=True, kw_only=True)
class MachineView:
    name: str
    uuid: str = ""
    state: State = State.ABSENT
    reason: str = ""
    message: str = ""
    interfaces: tuple[InterfaceView, ...] = ()
    agent: AgentView = AgentView()
    machine_type: str = ""
    #: What the guest has.
    memory_bytes: int = 0
    processors: int = 0
    disk_targets: tuple[tuple[str, str], ...] = ()
    graceful_shutdown_requested: bool = False
    emulated: bool = False
    filesystems_frozen: bool = False
    credentials: CredentialsView | None = None
    move: MoveView | None = None
    silence: Silence | None = None
    memory_dump: Dump | None = None
    #: It stands still since its state was saved.
    held: bool = False
    backup: Backup | None = None
    #: Volumes of which it is known which blocks have changed.
    tracked: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @property
    def ended_well(self) -> bool:
        """The guest shut itself down, or somebody who may ended it."""
        return self.state is State.SHUTOFF and self.reason in _GOOD_ENDS


def has_arrived(view: MachineView) -> bool:
    return is_whole(runs=view.state in RUNS, paused=view.state is State.PAUSED, reason=view.reason)


def compose(name: str, facts: Facts, domain: Domain, agent: AgentView) -> MachineView:
    """The view without what only the launcher knows (how QEMU ended, that it was told to stop)."""
    view = MachineView(name=name, uuid=facts.uuid, state=facts.state, reason=facts.reason)
    agent = agent if view.alive else AgentView()
    return replace(
        view,
        interfaces=merge_interfaces(domain, agent.report.interfaces),
        agent=agent,
        machine_type=domain.os.machine or "",
        memory_bytes=_memory(domain),
        processors=(domain.vcpu.current or domain.vcpu.value or 0) if domain.vcpu is not None else 0,
        disk_targets=tuple((_plain(d.alias), d.target or "") for d in domain.devices.disks if d.alias and _holds(d)),
        emulated=domain.type == "qemu",
        tracked=tuple(_plain(d.alias) for d in domain.devices.disks if d.source_file and is_layer(d.source_file)),
    )


def is_layer(path: str) -> bool:
    """Over a raw disk, with the bitmaps of its changes."""
    return PurePath(path).parent.name == names.KEPT_BLOCKS


def _memory(domain: Domain) -> int:
    """libvirt counts a memory device with all that it could bring."""
    total = _value(domain.memory)
    return (total + sum(_value(m.current) - _value(m.size) for m in domain.devices.memories)) * _KIB


def _value(amount: Amount | None) -> int:
    return amount.value or 0 if amount is not None else 0


def agent_channel_connected(domain: Domain) -> bool:
    return any(c.target_name == AGENT_CHANNEL and c.target_state == "connected" for c in domain.devices.channels)


def merge_interfaces(domain: Domain, reported: tuple[AgentInterface, ...]) -> tuple[InterfaceView, ...]:
    """Those of the domain in its order, joined with the guest's by MAC; then those that only the guest has."""
    by_mac = {i.mac.lower(): i for i in reported if i.mac}
    merged, known = [], set()
    for interface in domain.devices.interfaces:
        mac = (interface.mac or "").lower()
        known.add(mac)
        view = InterfaceView(name=_plain(interface.alias), mac=mac, from_domain=True, link_state=interface.link or "up")
        merged.append(_with_guest(view, by_mac[mac]) if mac in by_mac else view)
    strangers = [i for i in reported if i.mac.lower() not in known and i.name != "lo"]
    merged += [_with_guest(InterfaceView(mac=i.mac.lower()), i) for i in strangers[:MAX_GUEST_ONLY]]
    return tuple(merged)


def _with_guest(view: InterfaceView, interface: AgentInterface) -> InterfaceView:
    return replace(view, guest_name=interface.name, addresses=ordered_addresses(interface.addresses), from_agent=True)


def ordered_addresses(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Valid ones only; IPv4 first, since the first one is the one that people see."""
    ipv4 = tuple(a for a in addresses if _is_address(socket.AF_INET, a))
    ipv6 = tuple(a for a in addresses if _is_address(socket.AF_INET6, a))
    return ipv4 + ipv6


def _is_address(family: int, text: str) -> bool:
    try:
        socket.inet_pton(family, text)
    except OSError:
        return False
    return True


def _holds(disk: Disk) -> bool:
    """A drive without a medium has a place in the guest and nothing there."""
    return bool(disk.source_file or disk.source_dev)


def _plain(alias: str | None) -> str:
    return (alias or "").removeprefix("ua-")
