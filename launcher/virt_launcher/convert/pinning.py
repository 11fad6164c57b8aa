"""CPUs of the node for a machine that has them to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from virt_core.apis.owncpus import emulator_cpus, io_cpus, is_dedicated, is_realtime, sees_cells
from virt_launcher.convert.context import Context
from virt_launcher.convert.cpu import topology_of
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import CpuTune, IOThreadPin, VCpuPin
from virt_launcher.errors import InvalidVMIError

if TYPE_CHECKING:
    from virt_launcher.convert.cpuplan import Plan

_FIELD = "spec.domain.cpu.dedicatedCpuPlacement"


def configure_pinning(context: Context, domain: Domain) -> None:
    """After the IO threads. Under emulation libvirt refuses to pin vCPUs, and the launcher does it after the start."""
    if not is_dedicated(context.vmi):
        return
    from virt_launcher.convert.cpuplan import cpuset

    plan = plan_of(context)
    tune = CpuTune(emulator_cpuset=cpuset(plan.emulator) or None)
    if context.kvm:
        tune.vcpu_pins = [VCpuPin(vcpu=n, cpuset=str(cpu)) for n, cpu in enumerate(plan.vcpus)]
        if domain.features is not None:
            domain.features.kvm_hint_dedicated = True
    threads = _io_threads(plan, domain.iothreads or 0)
    tune.io_thread_pins = [IOThreadPin(iothread=n, cpuset=cpuset(cpus)) for n, cpus in enumerate(threads, start=1)]
    domain.cpu_tune = tune if tune != CpuTune() else None


def configure_cells(context: Context, domain: Domain) -> None:
    """After the pins."""
    if sees_cells(context.vmi):
        from virt_launcher.convert.numa import show_cells

        show_cells(context, domain)
    elif is_realtime(context.vmi):
        raise InvalidVMIError("spec.domain.cpu.realtime", "needs numa.guestMappingPassthrough")


def plan_of(context: Context) -> Plan:
    """Raises InvalidVMIError where the Pod has not the very number of CPUs that it asked for: then they are shared."""
    from virt_launcher.convert.cpuplan import Wish, cpuset, hand_out

    topology, vmi = topology_of(context), context.vmi
    io_pool = io_cpus(vmi)
    emulator = emulator_cpus(vmi, topology.vcpus + io_pool)
    wish = Wish(topology.sockets * topology.cores, topology.threads, io_pool, emulator, sees_cells(vmi))
    if len(context.host_cpus) != wish.total:
        have = cpuset([cpu.number for cpu in context.host_cpus]) or "none"
        raise InvalidVMIError(
            _FIELD,
            f"the machine needs {wish.total} CPUs to itself, but its Pod runs on {len(context.host_cpus)} ({have});"
            " the node's kubelet must have the static CPU manager policy",
        )
    plan = hand_out(context.host_cpus, wish)
    if len(plan.vcpus) < wish.vcpus:
        why = f"the Pod's CPUs lie so that {wish.threads} threads of a core would be in two memory cells of the node"
        raise InvalidVMIError("spec.domain.cpu.numa.guestMappingPassthrough", why)
    return plan


def _io_threads(plan: Plan, count: int) -> list[tuple[int, ...]]:
    """Those of the pool first, as they are numbered."""
    from virt_launcher.convert.cpuplan import shares

    pool = [(cpu,) for cpu in plan.io_pool[:count]]
    return pool + shares(count - len(pool), plan)
