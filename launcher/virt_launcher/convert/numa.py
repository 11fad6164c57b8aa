"""Memory cells of the guest that are those of the node. Imported only where a VMI asks for it."""

from __future__ import annotations

from virt_core.apis.owncpus import is_realtime
from virt_core.apis.realtime import is_mask
from virt_launcher.convert.context import Context
from virt_launcher.convert.cpuplan import cpuset
from virt_launcher.convert.memory import guest_memory
from virt_launcher.convert.numaplan import GuestCell, TooFewPages, guest_cells
from virt_launcher.convert.pinning import plan_of
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import Cell, HugePage, MemNode, MemoryBacking, NumaTune
from virt_launcher.errors import InvalidVMIError

_FIELD = "spec.domain.cpu.numa.guestMappingPassthrough"
_PAGE_FIELD = "spec.domain.memory.hugepages.pageSize"
_STRICT = "strict"


def show_cells(context: Context, domain: Domain) -> None:
    """After pages and pins. Raises InvalidVMIError where one of them is missing."""
    backing = domain.memory_backing
    if not context.host_cpus:
        raise InvalidVMIError(_FIELD, "needs dedicatedCpuPlacement")
    if backing is None or not backing.pages:
        raise InvalidVMIError(_FIELD, "needs memory.hugepages")
    if domain.max_memory is not None:
        raise InvalidVMIError("spec.domain.memory.maxGuest", f"memory cannot grow with {_FIELD}")
    cells = _cells(context, backing)
    nodes = cpuset([cell.node for cell in cells])
    strict = [MemNode(cell=n, mode=_STRICT, nodeset=str(cell.node)) for n, cell in enumerate(cells)]
    domain.numa_tune = NumaTune(mode=_STRICT, nodeset=nodes, nodes=strict)
    size = backing.pages[0].size
    backing.pages = [HugePage(size=size, unit="KiB", cells=str(number)) for number in range(len(cells))]
    backing.allocation = "immediate"
    if is_realtime(context.vmi):
        _run_undisturbed(context, domain, backing)
    _place_vcpus(domain, cells)


def _run_undisturbed(context: Context, domain: Domain, backing: MemoryBacking) -> None:
    """virt-handler schedules the vCPUs: the launcher must not (decisions/0032)."""
    realtime = context.cpu.realtime
    if realtime is not None and not is_mask(realtime.mask):
        raise InvalidVMIError("spec.domain.cpu.realtime.mask", "is neither empty nor like 0-3,^1")
    backing.unmerged = True
    if domain.features is not None:
        domain.features.pmu = False


def _cells(context: Context, backing: MemoryBacking) -> list[GuestCell]:
    place = {cpu.number: cpu.cell for cpu in context.host_cpus}
    page = (backing.pages[0].size or 1) * 1024
    try:
        return guest_cells(plan_of(context).vcpus, place, guest_memory(context) // page, page)
    except TooFewPages as error:
        raise InvalidVMIError(_PAGE_FIELD, str(error)) from error


def _place_vcpus(domain: Domain, cells: list[GuestCell]) -> None:
    """vCPUs that may come later have no CPU yet; they count for the last cell."""
    if domain.cpu is None or domain.vcpu is None:
        return
    present = sum(len(cell.vcpus) for cell in cells)
    later = tuple(range(present, domain.vcpu.value or present))
    of_cell = [cell.vcpus for cell in cells[:-1]] + [cells[-1].vcpus + later]
    domain.cpu.cells = [
        Cell(id=number, cpus=cpuset(vcpus), memory=cell.memory, unit="b")
        for number, (cell, vcpus) in enumerate(zip(cells, of_cell, strict=True))
    ]
