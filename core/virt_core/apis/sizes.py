"""The size of a machine that may change while it runs: CPU sockets and memory (decisions/0029). Pure.

Its VMI says what is asked for. virt-controller says for how much the launcher Pod has room, and a running machine gets
what is in both. What it has then, virt-handler says.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.quantity import format_bytes, parse_bytes
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import PodRoom


@dataclass(frozen=True, slots=True)
class Size:
    sockets: int
    #: Bytes of memory; 0 where nobody says them.
    guest: int

    def both(self, other: Size) -> Size:
        """Room enough for either."""
        return Size(max(self.sockets, other.sockets), max(self.guest, other.guest))

    def within(self, other: Size) -> Size:
        return Size(min(self.sockets, other.sockets), min(self.guest, other.guest))


def asked(vmi: VirtualMachineInstance) -> Size:
    cpu, memory = vmi.spec.domain.cpu, vmi.spec.domain.memory
    guest = memory.guest if memory is not None else None
    return Size(max(cpu.sockets if cpu is not None else 0, 1), parse_bytes(guest or 0))


def current(vmi: VirtualMachineInstance) -> Size:
    """What the machine has, as virt-handler saw it last; before that what it starts with."""
    wish, topology, memory = asked(vmi), vmi.status.current_cpu_topology, vmi.status.memory
    guest = memory.guest_current if memory is not None and can_grow(vmi) else None
    return Size(topology.sockets if topology and topology.sockets else wish.sockets, parse_bytes(guest or wish.guest))


def room(vmi: VirtualMachineInstance) -> Size:
    """For what the launcher Pod has the resources. Until it is changed, that is what the machine was started with."""
    wish, known = asked(vmi), vmi.status.pod_room
    if known is not None:
        return Size(known.sockets or wish.sockets, parse_bytes(known.guest or wish.guest))
    memory = vmi.status.memory
    guest = memory.guest_at_boot if memory is not None and can_grow(vmi) else None
    return Size(current(vmi).sockets, parse_bytes(guest or wish.guest))


def room_for(size: Size) -> PodRoom:
    return PodRoom(sockets=size.sockets, guest=format_bytes(size.guest) if size.guest else None)


def can_grow(vmi: VirtualMachineInstance) -> bool:
    """Whether its memory was made to change while it runs."""
    memory = vmi.spec.domain.memory
    return memory is not None and memory.guest is not None and memory.max_guest is not None


def with_size(vmi: VirtualMachineInstance, size: Size) -> VirtualMachineInstance:
    """The VMI as if it asked for that."""
    if size == asked(vmi):
        return vmi
    domain = vmi.spec.domain
    cpu = replace(domain.cpu, sockets=size.sockets) if domain.cpu is not None else None
    memory = domain.memory
    if memory is not None and size.guest != asked(vmi).guest:
        memory = replace(memory, guest=format_bytes(size.guest))
    return replace(vmi, spec=replace(vmi.spec, domain=replace(domain, cpu=cpu, memory=memory)))


def usable(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    """What a machine may be asked to be now: one that runs gets no more than its Pod has room for."""
    if vmi.status.phase != names.PHASE_RUNNING:
        return vmi
    return with_size(vmi, asked(vmi).within(room(vmi)))
