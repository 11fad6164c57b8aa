"""How many CPUs a machine has to itself: what its Pod asks for, and what its launcher hands out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from virt_core.apis import names

if TYPE_CHECKING:
    from virt_core.apis.vmi import VirtualMachineInstance


def vcpus(vmi: VirtualMachineInstance) -> int:
    cpu = vmi.spec.domain.cpu
    return max(cpu.cores, 1) * max(cpu.sockets, 1) * max(cpu.threads, 1) if cpu is not None else 1


def is_dedicated(vmi: VirtualMachineInstance) -> bool:
    """Whether each vCPU is to have a CPU of the node to itself."""
    cpu = vmi.spec.domain.cpu
    return cpu is not None and cpu.dedicated_cpu_placement


def isolates_emulator(vmi: VirtualMachineInstance) -> bool:
    cpu = vmi.spec.domain.cpu
    return cpu is not None and cpu.dedicated_cpu_placement and cpu.isolate_emulator_thread


def is_realtime(vmi: VirtualMachineInstance) -> bool:
    """Whether vCPUs are to run before everything else on their CPUs."""
    cpu = vmi.spec.domain.cpu
    return cpu is not None and cpu.realtime is not None


def sees_cells(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest is to see in which memory cells of the node its CPUs are."""
    cpu = vmi.spec.domain.cpu
    return cpu is not None and cpu.numa is not None and cpu.numa.guest_mapping_passthrough is not None


def io_cpus(vmi: VirtualMachineInstance) -> int:
    """Only the threads of a supplemental pool have CPUs of their own; others share those of the machine."""
    threads = vmi.spec.domain.io_threads
    if vmi.spec.domain.io_threads_policy != names.IO_THREADS_POOL or threads is None:
        return 0
    return max(threads.supplemental_pool_thread_count or 0, 0)


def emulator_cpus(vmi: VirtualMachineInstance, others: int) -> int:
    """One beside the others; a second one where the cluster wants an even number, so that no core is shared."""
    if not isolates_emulator(vmi):
        return 0
    return 2 if names.ANNOTATION_EVEN_PARITY in vmi.metadata.annotations and others % 2 == 0 else 1


def own_cpus(vmi: VirtualMachineInstance) -> int:
    """All of them together."""
    others = vcpus(vmi) + io_cpus(vmi)
    return others + emulator_cpus(vmi, others)
