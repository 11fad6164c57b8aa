"""A record is what a dataclass of the same declaration is, made in another way."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from virt_core.runtime.record import record

Declare = Callable[..., Callable[[type], type]]


def shapes(declare: Any) -> list[type]:
    @declare(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)

        def sum(self) -> int:
            return self.x + self.y

    @declare(slots=True, kw_only=True)
    class Named:
        """With a text of its own."""

        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)

    @declare(slots=True)
    class Open:
        x: int
        y: int = field(default=2, kw_only=True)
        tags: list[str] = field(default_factory=list)

    return [Point, Named, Open]


PAIRS = list(zip(shapes(record), shapes(dataclass), strict=True))


@record(frozen=True, slots=True)
class Kept:
    x: int
    inner: tuple[int, ...] = ()


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_values_look_and_compare_alike(ours: Any, theirs: Any) -> None:
    for named in ({"x": 1}, {"x": 1, "y": 5}, {"x": 1, "y": 3, "tags": ["a"]}):
        mine, other = ours(**named), theirs(**named)
        assert repr(mine).rpartition(".")[2] == repr(other).rpartition(".")[2]
        assert dataclasses.asdict(mine) == dataclasses.asdict(other)
        assert mine == ours(**named)
        assert mine != other
        assert mine != ours(x=9)
        changed = dataclasses.replace(mine, x=7)
        assert (changed.x, changed.y, changed.tags) == (7, mine.y, mine.tags)
    assert ours(x=1).tags is not ours(x=1).tags
    assert not hasattr(ours(x=1), "__dict__")


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1, 2, [], 4), {}), ((1,), {"x": 1}), ((), {"x": 1, "z": 3}), ((1,), {}), ((1, 2), {}), ((1, []), {})],
)
def test_the_same_calls_are_refused(ours: Any, theirs: Any, values: tuple[Any, ...], named: dict[str, Any]) -> None:
    def outcome(cls: Any) -> object:
        try:
            made = cls(*values, **named)
        except TypeError:
            return TypeError
        return dataclasses.asdict(made)

    assert outcome(ours) == outcome(theirs)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_what_is_frozen_stays(ours: Any, theirs: Any) -> None:
    def outcome(cls: Any) -> list[object]:
        made, seen = cls(x=1), []
        for act in (lambda: setattr(made, "x", 2), lambda: delattr(made, "y"), lambda: hash(made)):
            try:
                act()
                seen.append("done")
            except (FrozenInstanceError, TypeError) as error:
                seen.append(type(error))
        return seen

    assert outcome(ours) == outcome(theirs)


def test_equal_ones_have_one_hash_and_copies_are_equal() -> None:
    first, second = Kept(1, (2,)), Kept(1, inner=(2,))
    assert {first, second} == {first}
    for made in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert made == first
        assert made is not first
    with pytest.raises(FrozenInstanceError):
        copy.copy(first).x = 2  # type: ignore[misc]


def test_methods_and_texts_stay() -> None:
    point, named = PAIRS[0][0], PAIRS[1][0]
    assert point(3).sum() == 5
    assert (point.__doc__, named.__doc__) == ("Point", "With a text of its own.")
    assert point.__match_args__ == ("x", "y", "tags")
