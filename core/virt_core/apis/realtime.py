"""vCPUs that go before everything else on their CPUs: which ones a machine names. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virt_core.apis.vmi import VirtualMachineInstance

_ENTRY = re.compile(r"\s*(\^?)([0-9]{1,5})(?:-([0-9]{1,5}))?\s*")


def is_mask(text: str) -> bool:
    """Like `0-3,^1`; empty counts as none."""
    return not text.strip() or all(_entry(part) is not None for part in text.split(","))


def realtime_vcpus(vmi: VirtualMachineInstance, vcpus: int) -> frozenset[int]:
    """Out of so many: those of the mask, or all of them where there is none. Raises ValueError."""
    cpu = vmi.spec.domain.cpu
    if cpu is None or cpu.realtime is None:
        return frozenset()
    if not cpu.realtime.mask.strip():
        return frozenset(range(vcpus))
    chosen: set[int] = set()
    for part in cpu.realtime.mask.split(","):
        entry = _entry(part)
        if entry is None:
            raise ValueError(f"{part.strip()!r} is neither a number of a vCPU, nor a range, nor one with ^ before it")
        without, first, last = entry
        numbers = range(first, min(last + 1, vcpus))
        chosen = chosen.difference(numbers) if without else chosen.union(numbers)
    return frozenset(chosen)


def _entry(part: str) -> tuple[bool, int, int] | None:
    """Whether it takes away, and from where to where."""
    found = _ENTRY.fullmatch(part)
    if found is None:
        return None
    first = int(found[2])
    last = int(found[3]) if found[3] else first
    return (found[1] == "^", first, last) if first <= last else None
