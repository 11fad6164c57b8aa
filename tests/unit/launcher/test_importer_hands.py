"""The threads that unpack and write beside the one that reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from virt_launcher.importer.errors import Refused
from virt_launcher.importer.hands import Hands


@pytest.fixture
def hands() -> Iterator[Hands]:
    made = Hands(2)
    yield made
    made.close()


def test_jobs_of_one_lane_are_done_in_their_order(hands: Hands) -> None:
    done: dict[int, list[int]] = {0: [], 1: []}
    for number in range(500):
        lane = number % 2
        hands.do(lane, lambda lane=lane, number=number: done[lane].append(number), 10)  # type: ignore[misc]
    hands.wait()
    assert done == {0: list(range(0, 500, 2)), 1: list(range(1, 500, 2))}


def test_what_goes_wrong_is_raised_to_who_gives_the_jobs_and_ends_them(hands: Hands) -> None:
    def fail() -> None:
        raise Refused("NoSpace", "there is no space left")

    done: list[int] = []
    hands.do(0, fail, 1)
    with pytest.raises(Refused, match="no space"):
        hands.wait()
    with pytest.raises(Refused, match="no space"):
        hands.do(1, lambda: done.append(1), 1)
    assert done == []
    hands.forget()
    hands.do(1, lambda: done.append(2), 1)
    hands.wait()
    assert done == [2]


def test_what_waits_is_bounded(hands: Hands) -> None:
    """A reader that is faster than the disk is held up, and does not fill the memory."""
    go_on, given = threading.Event(), []

    def give() -> None:
        for number in range(64):
            hands.do(0, lambda: go_on.wait(20) or None, 1 << 20)  # type: ignore[arg-type,return-value,func-returns-value]
            given.append(number)

    giver = threading.Thread(target=give)
    giver.start()
    giver.join(0.5)
    assert giver.is_alive()
    assert len(given) <= 8
    go_on.set()
    giver.join(20)
    hands.wait()
    assert len(given) == 64


def test_one_job_that_is_larger_than_all_is_done_alone(hands: Hands) -> None:
    done = threading.Event()
    hands.do(0, done.set, 1 << 30)
    hands.wait()
    assert done.is_set()
