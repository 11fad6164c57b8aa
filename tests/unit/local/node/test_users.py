"""Ranges of users: never two Pods in one, and free again when the Pod has gone, however it went."""

from __future__ import annotations

from pathlib import Path

import pytest

from virt_local.node import users
from virt_local.node.users import FIRST, SIZE, give_back, take_range


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "RANGES", 8)


def test_each_gets_its_own_until_there_are_none(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    owners = [tmp_path / str(number) for number in range(9)]
    for owner in owners:
        owner.touch()
    bases = [take_range(owner, taken) for owner in owners[:8]]
    assert sorted(bases) == [FIRST + SIZE * number for number in range(8)]
    with pytest.raises(OSError, match="all 8 ranges of users are taken"):
        take_range(owners[8], taken)
    give_back(bases[3], taken)
    assert take_range(owners[8], taken) == bases[3]


def test_what_a_killed_one_left_behind_is_free(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    for number in range(8):
        take_range(tmp_path / f"gone-{number}", taken)
    assert FIRST <= take_range(tmp_path, taken) < FIRST + 8 * SIZE


def test_only_root_sees_who_has_which(tmp_path: Path) -> None:
    take_range(tmp_path, tmp_path / "taken")
    assert (tmp_path / "taken").stat().st_mode & 0o777 == 0o700
