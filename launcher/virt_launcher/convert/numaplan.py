"""The memory cells of a guest that sees those of its node. Pure.

A cell of the guest has the vCPUs whose CPUs are in one cell of the node, and an even share of the memory in whole huge
pages, which comes from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GuestCell:
    """Which cell of the node it is, its vCPUs, and its memory in bytes."""

    node: int
    vcpus: tuple[int, ...]
    memory: int


class TooFewPages(Exception):
    """There are fewer huge pages than cells, and a cell without memory is none."""


def guest_cells(cpus: Sequence[int], cell_of: Mapping[int, int], pages: int, page_size: int) -> list[GuestCell]:
    """By the CPU of each vCPU and the cell of each CPU. Pages that are over go to the first cells."""
    nodes = sorted({cell_of[cpu] for cpu in cpus})
    if pages < len(nodes):
        raise TooFewPages(f"{pages} pages of {page_size} bytes are too few for {len(nodes)} memory cells")
    share, over = divmod(pages, len(nodes))
    return [
        GuestCell(
            node,
            tuple(vcpu for vcpu, cpu in enumerate(cpus) if cell_of[cpu] == node),
            (share + (number < over)) * page_size,
        )
        for number, node in enumerate(nodes)
    ]
