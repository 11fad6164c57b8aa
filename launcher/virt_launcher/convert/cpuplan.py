"""Which CPU of the Pod is whose, when the machine has them to itself. Pure.

A core of the guest gets the threads of one core of the node as long as there are whole ones, then CPUs of one memory
cell, then any; but a guest that sees the cells has no core in two of them. After the vCPUs come the threads of the IO
pool, then the emulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True, order=True)
class HostCpu:
    """A CPU of the node: in which memory cell, and on which core. Their order is that of closeness."""

    cell: int
    core: int
    number: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What the machine needs CPUs for."""

    cores: int
    threads: int
    io_pool: int = 0
    emulator: int = 0
    #: No core of the guest may lie in two memory cells.
    whole_cells: bool = False

    @property
    def vcpus(self) -> int:
        return self.cores * self.threads

    @property
    def total(self) -> int:
        return self.vcpus + self.io_pool + self.emulator


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of CPUs of the node: one for each vCPU, one for each thread of the pool, and those of the emulator."""

    vcpus: tuple[int, ...]
    io_pool: tuple[int, ...] = ()
    emulator: tuple[int, ...] = ()


_CLOSENESS: tuple[Callable[[HostCpu], tuple[int, ...]], ...] = (
    lambda cpu: (cpu.cell, cpu.core),
    lambda cpu: (cpu.cell,),
    lambda _: (),
)


def hand_out(cpus: Iterable[HostCpu], wish: Wish) -> Plan:
    """There must be as many CPUs as the wish counts. Only with whole cells there may be fewer vCPUs than wished for."""
    free = sorted(cpus)
    vcpus: list[HostCpu] = []
    for close in _CLOSENESS[:2] if wish.whole_cells else _CLOSENESS:
        for _, group in groupby(list(free), close):
            together = list(group)
            wanted = min(len(together), wish.vcpus - len(vcpus)) // wish.threads * wish.threads
            vcpus += together[:wanted]
            free = [cpu for cpu in free if cpu not in together[:wanted]]
    rest = [cpu.number for cpu in free]
    pool, emulator = rest[: wish.io_pool], rest[wish.io_pool : wish.io_pool + wish.emulator]
    return Plan(tuple(cpu.number for cpu in vcpus), tuple(pool), tuple(emulator))


def shares(threads: int, plan: Plan) -> list[tuple[int, ...]]:
    """The CPUs of IO threads that have none of their own: the emulator's, else those of the vCPUs, evenly."""
    cpus, count = plan.vcpus, len(plan.vcpus)
    if plan.emulator:
        return [plan.emulator] * threads
    if threads >= count:
        return [(cpus[number % count],) for number in range(threads)]
    return [cpus[number * count // threads : (number + 1) * count // threads] for number in range(threads)]


def cpuset(numbers: Sequence[int]) -> str:
    """As libvirt writes it."""
    return ",".join(str(number) for number in sorted(numbers))
