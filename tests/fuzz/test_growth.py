"""Twice the input is about twice the work, and many inputs leave nothing behind."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest
from fuzz.catalog import TARGETS
from fuzz.drive import samples
from fuzz.steps import counting

#: Work of four times the input over the work of the input. A square would give sixteen.
MOST = 7.0
FAMILIES = [
    pytest.param(name, family, id=f"{name}-{family}")
    for name, target in sorted(TARGETS.items())
    for family in sorted(target.families)
]
#: How many inputs one round has: the first fills caches, the others must not add to them.
ROUND = 40


@pytest.mark.parametrize(("name", "family"), FAMILIES)
def test_work_grows_with_the_input(name: str, family: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    grow = target.families[family]
    with counting() as counter, target.open(tmp_path) as run:
        run(grow(target.parts + 1))  # What is imported and compiled at the first use is not the input's work.
        small, large = (counter.lines_of(run, grow(parts)) for parts in (target.parts, 4 * target.parts))
    assert large <= MOST * small, f"{target.parts} parts take {small} lines of Python, four times as many take {large}"


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_inputs_leave_nothing_behind(name: str, tmp_path: Path) -> None:
    """Each round has inputs of its own, so that a cache with the caller's words for keys would show."""
    target = TARGETS[name]
    rounds = [samples(target, ROUND, number) for number in (1, 2, 3)]
    with target.open(tmp_path) as run:
        for data in rounds[0]:
            run(data)
        tracemalloc.start()
        try:
            kept = [_held_after(run, inputs) for inputs in rounds[1:]]
        finally:
            tracemalloc.stop()
    assert kept[1] - kept[0] <= target.may_keep, f"{ROUND} inputs left {kept[1] - kept[0]} bytes behind"


def _held_after(run: object, inputs: list[bytes]) -> int:
    for data in inputs:
        run(data)  # type: ignore[operator]
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_a_square_shows() -> None:
    """The measure itself: a reader that looks at all pairs is found out, one that looks at each part is not."""

    def pairs(data: bytes) -> None:
        for left in data:
            for right in data:
                assert left <= 255 or right

    def each(data: bytes) -> None:
        for letter in data:
            assert letter <= 255

    with counting() as counter:
        assert counter.lines_of(pairs, bytes(400)) > MOST * counter.lines_of(pairs, bytes(100))
        assert counter.lines_of(each, bytes(400)) < MOST * counter.lines_of(each, bytes(100))
