"""When a machine that moves in is whole. Pure, and asked on both sides of the launcher's socket."""

from __future__ import annotations

#: Reasons of libvirt for which a machine is paused that has all of its memory. In all others its memory still comes, or
#: it is being ended before all of it came.
_STANDS = frozenset({"User", "Save", "Dump", "IOError", "Watchdog", "Snapshot"})
#: It runs, or did, and part of its memory is still where it comes from (post-copy).
SPLIT_REASONS = frozenset({"Postcopy", "PostcopyFailed"})


def is_whole(*, runs: bool, paused: bool, reason: str) -> bool:
    """Whole, and allowed to run: before that it is only memory that fills. `reason` is libvirt's, of its state.

    One that is shutting down is not taken for whole: so looks a machine whose way was cut, while libvirt ends it."""
    return (runs and reason not in SPLIT_REASONS) or (paused and reason in _STANDS)
