"""What may become of a machine that leaves: the choices of `traffic`, `wire` and `source` on which it depends that it
never runs twice. Pure, so that the search in tests/unit/migration_model goes through them too.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from virt_core.apis.arrival import SPLIT_REASONS
from virt_launcher.hypervisor.ports import Facts, State


class Begin(enum.Enum):
    NOW = "now"
    #: Asked again by somebody who did not get the answer, or asked late: it was given up meanwhile.
    NEVER_AGAIN = "never again"
    BUSY = "busy"


class Cancel(enum.Enum):
    ABORT = "abort"
    #: It has not begun, and never will: whoever asks for it later asks too late.
    DECLINE = "decline"
    OVER = "over"
    BUSY = "busy"


class Fate(enum.Enum):
    """Of a machine whose move has ended without an answer."""

    LEFT = "left"
    STAYS = "stays"
    #: It stands still, and may run on the other side.
    OPEN = "open"
    #: It runs on the other side, with part of its memory still here: both are needed until all of it is there.
    SPLIT = "split"


def begin(uid: str, tried: Collection[str], under_way: bool) -> Begin:
    if uid in tried:
        return Begin.NEVER_AGAIN
    return Begin.BUSY if under_way else Begin.NOW


def cancel(uid: str, begun: Collection[str], current: str) -> Cancel:
    """`current`: the job whose move is under way, if one is."""
    if current:
        return Cancel.ABORT if uid == current else Cancel.BUSY
    return Cancel.OVER if uid in begun else Cancel.DECLINE


def is_split(facts: Facts | None) -> bool:
    """By post-copy. libvirt never lets it go on here from then on, whatever it is told and whoever is lost."""
    return facts is not None and facts.state is State.PAUSED and facts.reason in SPLIT_REASONS


def has_left(facts: Facts | None) -> bool:
    """By libvirt's word."""
    return facts is not None and facts.state is State.SHUTOFF and facts.reason == "Migrated"


def stands_still(facts: Facts | None) -> bool:
    """And waits for an answer that could let it go on here."""
    return facts is None or (facts.state is not State.RUNNING and not is_split(facts))


def is_held(hung_up: bool, stands_still: bool) -> bool:
    """The way on is lost. `hung_up`: libvirt itself ended the connection, so it has its answer. While the guest runs
    libvirt has not asked yet whether it may run there."""
    return not hung_up and stands_still


def after_daemon(facts: Facts | None, was_paused: bool) -> Fate:
    """libvirt's daemon died in the middle. Its successor ends or undoes the move by what it wrote down, but leaves a
    guest alone that stands still since the switch: the other side may have been asked. `was_paused`: before it.
    """
    if facts is None or has_left(facts):
        return Fate.LEFT
    if is_split(facts):
        return Fate.SPLIT
    if facts.state is State.PAUSED and (facts.reason == "Migration" or not was_paused):
        return Fate.OPEN
    return Fate.STAYS
