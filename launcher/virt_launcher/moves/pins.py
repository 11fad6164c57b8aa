"""Which CPUs a machine that has some to itself gets on the other side. Pure."""

from __future__ import annotations

import dataclasses

from virt_core.apis.owncpus import is_dedicated
from virt_core.apis.topology import cpus_of
from virt_launcher.convert.context import Context
from virt_launcher.convert.cpuplan import HostCpu
from virt_launcher.convert.pinning import configure_pinning
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import CpuTune
from virt_launcher.errors import WrongStateError


def pins_there(context: Context, running: Domain) -> CpuTune | None:
    """From what the other side has told of itself. None: the machine has no CPUs to itself. Raises WrongStateError."""
    if not is_dedicated(context.vmi):
        return None
    move = context.vmi.status.migration_state
    told = cpus_of(move.target_node_topology) if move is not None else []
    if move is None or sorted(cpu.number for cpu in told) != sorted(move.target_cpu_set) or not told:
        raise WrongStateError("the other side has not told which CPUs the machine gets there")
    cpus = tuple(HostCpu(cpu.cell, cpu.core, cpu.number) for cpu in told)
    there = Domain(name=running.name, iothreads=running.iothreads)
    configure_pinning(dataclasses.replace(context, host_cpus=cpus), there)
    return there.cpu_tune
