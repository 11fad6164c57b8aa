"""The guest's memory: what it starts with, and what it can grow to while it runs (decisions/0029).

A machine is only told its limit when it starts. The device that brings more comes with the first growth, so that a
machine that never grows pays for none.
"""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.owncpus import is_dedicated
from virt_core.apis.quantity import Quantity, QuantityError, parse_quantity
from virt_launcher.convert.context import Context
from virt_launcher.domain.devices import MemoryDevice
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import Amount, Cell, HugePage, MaxMemory, MemoryBacking
from virt_launcher.errors import InvalidVMIError

_MIB = 1 << 20
_GIB = 1 << 30
#: libvirt 9.0 refuses a limit without a slot for a DIMM, though the device that we add takes none.
_SLOTS = 1
_ALIAS = "ua-memory"


def configure_memory(context: Context, domain: Domain) -> None:
    domain.memory = Amount(unit="b", value=boot_memory(context))


def configure_growth(context: Context, domain: Domain) -> None:
    """After the processors: libvirt wants to know whose the memory is."""
    boot, most = boot_memory(context), _most(context)
    if most <= boot or domain.cpu is None or domain.vcpu is None:
        return
    domain.max_memory = MaxMemory(slots=_SLOTS, unit="b", value=most)
    domain.cpu.cells = [Cell(id=0, cpus=f"0-{(domain.vcpu.value or 1) - 1}", memory=boot, unit="b")]
    if (more := guest_memory(context) - boot) > 0:
        domain.devices.memories.append(_device(context, most - boot, more))


def _device(context: Context, size: int, requested: int) -> MemoryDevice:
    """In KiB, as libvirt tells it."""
    return MemoryDevice(
        model="virtio-mem",
        size=Amount(unit="KiB", value=size >> 10),
        node=0,
        block=Amount(unit="KiB", value=_block(context) >> 10),
        requested=Amount(unit="KiB", value=requested >> 10),
        alias=_ALIAS,
    )


def _block(context: Context) -> int:
    """The piece in which it comes and goes."""
    memory = context.vmi.spec.domain.memory
    pages = memory.hugepages if memory is not None else None
    large = pages is not None and _bytes("spec.domain.memory.hugepages.pageSize", pages.page_size) == _GIB
    return _GIB if large else 2 * _MIB


def boot_memory(context: Context) -> int:
    """What the machine has from its start on. Only where memory can grow is that another amount than the guest's."""
    status = context.vmi.status.memory
    if not _most(context) or status is None or status.guest_at_boot is None:
        return guest_memory(context)
    return _at_least_one_mib("status.memory.guestAtBoot", status.guest_at_boot)


def _most(context: Context) -> int:
    memory = context.vmi.spec.domain.memory
    if memory is None or memory.max_guest is None:
        return 0
    return _bytes("spec.domain.memory.maxGuest", memory.max_guest)


def configure_memory_backing(context: Context, domain: Domain) -> None:
    _configure_pages(context, domain)
    if context.vmi.spec.domain.devices.filesystems:
        _share(context, domain)


def _share(context: Context, domain: Domain) -> None:
    """With whoever serves the guest's filesystems. Where the Pod cannot get more memory than it asked for, all of it is
    touched by QEMU at the start: the kernel counts a page for who touches it first."""
    backing = domain.memory_backing or MemoryBacking(source="memfd")
    backing.access = "shared"
    backing.allocation = "immediate" if is_dedicated(context.vmi) and not backing.pages else None
    domain.memory_backing = backing


def _configure_pages(context: Context, domain: Domain) -> None:
    memory = context.vmi.spec.domain.memory
    if memory is None or memory.hugepages is None:
        return
    path = "spec.domain.memory.hugepages.pageSize"
    size = _bytes(path, memory.hugepages.page_size)
    if size % 1024 or guest_memory(context) % size:
        raise InvalidVMIError(path, f"the guest's memory is not a multiple of {memory.hugepages.page_size}")
    page = HugePage(size=size // 1024, unit="KiB")
    # Without a file of memory it is a file in the mount of the Pod.
    files = context.vmi.metadata.annotations.get(names.ANNOTATION_MEMFD) == "false"
    domain.memory_backing = MemoryBacking(pages=[page], source=None if files else "memfd")


def guest_memory(context: Context) -> int:
    """What the guest sees, in bytes: memory.guest, else what the Pod asks for."""
    spec = context.vmi.spec.domain
    given: list[tuple[str, Quantity | None]] = [
        ("spec.domain.memory.guest", spec.memory.guest if spec.memory is not None else None),
        ("spec.domain.resources.requests.memory", spec.resources.requests.get("memory")),
        ("spec.domain.resources.limits.memory", spec.resources.limits.get("memory")),
    ]
    for path, quantity in given:
        if quantity is not None:
            return _at_least_one_mib(path, quantity)
    raise InvalidVMIError("spec.domain.memory.guest", "is required")


def _at_least_one_mib(path: str, quantity: Quantity) -> int:
    value = _bytes(path, quantity)
    if value < _MIB:
        raise InvalidVMIError(path, f"{quantity} is less than 1Mi")
    return value


def _bytes(path: str, quantity: Quantity) -> int:
    try:
        return int(parse_quantity(quantity))
    except QuantityError as error:
        raise InvalidVMIError(path, str(error)) from error
