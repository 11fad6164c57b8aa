"""A short pass over every target with inputs that are made up, the same ones each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.catalog import TARGETS
from fuzz.drive import Broken, drive


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_nothing_breaks_it(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    with target.open(tmp_path) as run:
        drive(target, run, target.examples)


def test_what_breaks_is_found_and_made_small() -> None:
    """The driver itself: a target that cannot take a quotation mark is told so by the smallest input that has one."""
    target = TARGETS["agents"]

    def run(data: bytes) -> None:
        assert b'"return": []' not in data

    with pytest.raises(Broken) as caught:
        drive(target, run, 2000)
    assert caught.value.data == b'{"return": []}'
