"""Another number of CPU sockets, or another amount of memory, for a machine that runs (decisions/0029). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from virt_controller.vm import facts
from virt_core.apis import names, sizes
from virt_core.apis.owncpus import is_dedicated
from virt_core.apis.quantity import Quantity, format_bytes, format_decimal, parse_bytes, parse_quantity
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.kube.conditions import get_condition
from virt_core.kube.patch import op, pointer

_MIB = 1 << 20
#: Memory comes and goes in pieces of this size.
_PIECE = 2 * _MIB
_HANDED_OUT = "are handed out when the machine starts"


@dataclass(frozen=True, slots=True)
class Growth:
    """Operations on the VMI; else why a restart is needed, or that it must wait for another change to end."""

    operations: list[dict[str, Any]] = field(default_factory=list)
    restart: str = ""
    waits: bool = False


def names_sockets(spec: VirtualMachineInstanceSpec) -> bool:
    return spec.domain.cpu is not None and bool(spec.domain.cpu.sockets)


def names_memory(spec: VirtualMachineInstanceSpec) -> bool:
    return spec.domain.memory is not None and spec.domain.memory.guest is not None


def sockets(wanted: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> Growth:
    cpu, running = wanted.domain.cpu, vmi.spec.domain.cpu
    if cpu is None or not cpu.sockets:
        return _unnamed(vmi, "CPU sockets")
    if running is None or cpu.sockets == (running.sockets or 1):
        return Growth()
    want, have = cpu.sockets, sizes.current(vmi).sockets
    if is_dedicated(vmi):
        return Growth(restart=f"CPUs of the machine's own {_HANDED_OUT}")
    if want < have:
        return Growth(restart=f"CPU sockets cannot be reduced from {have} to {want} in a running machine")
    if vmi.spec.architecture == "arm64" or want > running.max_sockets:
        return Growth(restart=f"{want} CPU sockets are more than the running machine can have ({running.max_sockets})")
    if _is_busy(vmi):
        return Growth(waits=True)
    more = (want - (running.sockets or 1)) * max(running.cores, 1) * max(running.threads, 1)
    return Growth([op.replace("/spec/domain/cpu/sockets", want), *_resources(vmi, "cpu", more)])


def memory(wanted: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> Growth:
    asked, running = wanted.domain.memory, vmi.spec.domain.memory
    if asked is None or asked.guest is None:
        return _unnamed(vmi, "memory")
    if running is None or running.guest is None:
        return Growth()
    want, more = parse_bytes(asked.guest), parse_bytes(asked.guest) - parse_bytes(running.guest)
    if not more:
        return Growth()
    if reason := _cannot_be(want, vmi):
        return Growth(restart=reason)
    if _is_busy(vmi):
        return Growth(waits=True)
    return Growth([op.replace("/spec/domain/memory/guest", asked.guest), *_resources(vmi, "memory", more)])


def _unnamed(vmi: VirtualMachineInstance, what: str) -> Growth:
    """A default follows from more than we know here; of a machine that was changed it is another one for sure."""
    if vmi.status.pod_room is None:
        return Growth()
    return Growth(restart=f"the VM does not say any more how much {what} it has, and the running machine was changed")


def _cannot_be(want: int, vmi: VirtualMachineInstance) -> str:
    running, status = vmi.spec.domain.memory, vmi.status.memory
    if running is None or running.guest is None or running.max_guest is None:
        return "the guest's memory can only change in a machine that was started with spec.domain.memory.maxGuest"
    if running.hugepages is not None:
        return f"huge pages {_HANDED_OUT}"
    if is_dedicated(vmi):
        return f"memory and CPUs of the machine's own {_HANDED_OUT}"
    boot = status.guest_at_boot if status is not None and status.guest_at_boot is not None else running.guest
    if want < parse_bytes(boot):
        return f"the guest's memory cannot be less than the {boot} that it booted with"
    if want > parse_bytes(running.max_guest):
        return f"{format_bytes(want)} of memory are more than the running machine can have ({running.max_guest})"
    return "" if want % _PIECE == 0 else "the guest's memory changes in steps of 2Mi"


def _is_busy(vmi: VirtualMachineInstance) -> bool:
    """A change is under way. One that the node has put off or refused can be taken back."""
    if vmi.status.phase != names.PHASE_RUNNING or facts.is_migrating(vmi):
        return True
    found = [
        get_condition(vmi.status.conditions, type)
        for type in (names.CONDITION_HOT_VCPU_CHANGE, names.CONDITION_HOT_MEMORY_CHANGE)
    ]
    return any(c is not None and c.status == names.TRUE and not c.reason for c in found)


def _resources(vmi: VirtualMachineInstance, name: str, more: int) -> list[dict[str, Any]]:
    """Requests and limits that its owner gave grow along; those that follow from the size do so by themselves."""
    given: dict[str, Mapping[str, Quantity]] = {
        "requests": vmi.spec.domain.resources.requests,
        "limits": vmi.spec.domain.resources.limits,
    }
    return [
        op.replace(pointer("spec", "domain", "resources", kind, name), _sum(name, amounts[name], more))
        for kind, amounts in given.items()
        if name in amounts
    ]


def _sum(name: str, amount: Quantity, more: int) -> str:
    total = max(parse_quantity(amount) + Decimal(more), Decimal(0))
    return format_decimal(total) if name == "cpu" else format_bytes(int(total))
