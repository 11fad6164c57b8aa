"""What a move takes along, and what libvirt is asked for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from virt_core.apis.quantity import parse_bytes
from virt_core.apis.travel import copied, moved, size_of
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import CpuTune
from virt_launcher.moves.destination import Place

_KIB = 1024
#: Since then QEMU writes down all that an emulated guest changes while it moves (seen: one in ten slow moves of 7.2
#: ended in a panic of the guest, none of 10.0).
_WHOLE_UNDER_EMULATION = 9_000_000


@dataclass(frozen=True, slots=True)
class Route:
    """Where the other side is, as paths of sockets: libvirt's own, and those that lead on."""

    libvirt: str
    memory: str
    disks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """All that libvirt is asked for."""

    route: Route
    #: Targets (`vda`) of the disks that are copied.
    disks: tuple[str, ...] = ()
    bandwidth_mib: int = 0
    parallel: int = 0
    auto_converge: bool = False
    post_copy: bool = False
    unsafe: bool = False
    #: The guest stands still by the user's wish, and shall there too.
    paused: bool = False
    #: The CPUs that the machine has to itself there; None: it has none, or they are not known.
    tune: CpuTune | None = None
    #: Files below container disks that are elsewhere there, by the disks' aliases.
    images: Mapping[str, str] = field(default_factory=dict)
    #: Disks that are of another kind there, by their aliases.
    places: Mapping[str, Place] = field(default_factory=dict)


def copied_disks(vmi: VirtualMachineInstance, domain: Domain) -> tuple[str, ...]:
    wanted = {volume.name for volume in copied(vmi)}
    return tuple(
        disk.target
        for disk in domain.devices.disks
        if disk.target and not disk.readonly and (disk.alias or "").removeprefix("ua-") in wanted
    )


def size_bytes(vmi: VirtualMachineInstance, domain: Domain) -> int:
    """How much there is to move, as far as it is known beforehand: it decides how long the move may take."""
    memory = (domain.memory.value or 0) * _KIB if domain.memory is not None else 0
    local = sum(
        parse_bytes(volume.empty_disk.capacity)
        for volume in vmi.spec.volumes
        if volume.empty_disk is not None and volume.empty_disk.capacity
    )
    known = {status.name: status for status in vmi.status.volume_status}
    return memory + local + sum(size_of(known.get(volume.name)) for volume in moved(vmi))


def hazard(domain: Domain, qemu_version: int) -> str:
    """What people should know of the move before it is over; empty: nothing."""
    if domain.type != "qemu" or qemu_version >= _WHOLE_UNDER_EMULATION:
        return ""
    major, minor = qemu_version // 1_000_000, qemu_version // 1000 % 1000
    return (
        f"the guest is emulated, and QEMU {major}.{minor} can lose what an emulated guest writes while it moves: it may"
        " crash afterwards. QEMU 9.0 and newer do not, nor does any with KVM"
    )
