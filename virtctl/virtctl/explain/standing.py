"""Where a machine stands, why, and what to type next. Pure: facts in, one sentence out.

One function for each situation, tried in order; each returns None when it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable

from virtctl.explain import settled, starting
from virtctl.explain.facts import Facts
from virtctl.explain.words import Standing, describe

_SITUATIONS: tuple[Callable[[Facts], Standing | None], ...] = (
    settled.without_vmi,
    settled.deleting,
    settled.failed,
    settled.succeeded,
    settled.paused,
    settled.running,
    settled.unknown,
    starting.pod_in_trouble,
    starting.pending,
    starting.scheduling_without_pod,
    starting.at_the_node,
    starting.waiting,
)


def standing(facts: Facts) -> Standing:
    for situation in _SITUATIONS:
        if (found := situation(facts)) is not None:
            return found
    return Standing(f"Its phase is {facts.phase or 'not set yet'}.", describe(facts))
