"""The guest's memory.

No <maxMemory>: nothing in the launcher's contract changes the size of a running guest, and an unused hot-plug area only
adds devices and page tables.
"""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.quantity import Quantity, QuantityError, parse_quantity
from virt_launcher.convert.context import Context
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import Amount, HugePage, MemoryBacking
from virt_launcher.errors import InvalidVMIError

_MIB = 1 << 20


def configure_memory(context: Context, domain: Domain) -> None:
    domain.memory = Amount(unit="b", value=guest_memory(context))


def configure_memory_backing(context: Context, domain: Domain) -> None:
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
