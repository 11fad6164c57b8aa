"""Where the CPUs of a launcher Pod lie on its node, as a VMI's status carries it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from virt_core.apis.base import UNREADABLE, Struct, decode, encode


class Thread(Struct):
    """A CPU as the kernel counts them."""

    id: int = 0
    #: All threads of its core, itself among them; the first stands for the core.
    siblings: list[int] = []


class Cell(Struct):
    """A memory cell."""

    id: int = 0
    cpus: list[Thread] = []


class Topology(Struct):
    """Of a node, as far as it matters here."""

    numa_cells: list[Cell] = []


@dataclass(frozen=True, slots=True, order=True)
class Cpu:
    """One CPU: in which memory cell, on which core."""

    cell: int
    core: int
    number: int


def text_of(cpus: list[Cpu]) -> str:
    cells = [
        Cell(id=cell, cpus=[Thread(id=cpu.number, siblings=[cpu.core]) for cpu in group])
        for cell, group in groupby(sorted(cpus), key=lambda cpu: cpu.cell)
    ]
    return encode(Topology(numa_cells=cells)).decode()


def cpus_of(text: str) -> list[Cpu]:
    """Nothing if it cannot be read."""
    try:
        cells = decode(text or "{}", Topology).numa_cells
    except UNREADABLE:
        return []
    return [
        Cpu(cell=cell.id, core=min(thread.siblings, default=thread.id), number=thread.id)
        for cell in cells
        for thread in cell.cpus
    ]
