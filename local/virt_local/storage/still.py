"""Whether a copy shows its source as it was at one instant, though somebody may have written meanwhile. Pure.

Each file has a stamp: what the kernel changes with every write. Nothing changed between the stamps before and after:
then every moment in between looked like the copy. One file changed, and the kernel copied that one at one instant (a
reflink): then that instant is the copy's. In any other case the copy may show what never was, and is thrown away.

The kernel's clock for stamps is coarse: a file that changed within a tick before its stamp was taken may change again
without a trace, so it counts as changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

#: Longer than a tick of any kernel.
TICK_NS = 20_000_000

#: inode, size, time of the last change of content or of anything else.
Stamp = tuple[int, int, int, int]


def changed(before: Mapping[str, Stamp], after: Mapping[str, Stamp], taken_ns: int) -> set[str]:
    """`taken_ns`: when the stamps before the copy were begun to be taken."""
    moved = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    fresh = {path for path, stamp in before.items() if max(stamp[2], stamp[3]) > taken_ns - TICK_NS}
    return moved | fresh


def is_whole(moved: Collection[str], at_once: Collection[str]) -> bool:
    return not moved or (len(moved) == 1 and set(moved) <= set(at_once))
