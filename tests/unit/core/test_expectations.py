"""A controller must not act twice on a cache that does not show its own write yet."""

from __future__ import annotations

from virt_core.kube.expectations import Expectations
from virt_core.runtime.clock import FakeClock


def test_nothing_expected_is_satisfied() -> None:
    assert Expectations().satisfied("ns/a")


def test_creations_count_down() -> None:
    expected = Expectations()
    expected.expect_creations("ns/a", 2)
    expected.creation_observed("ns/a")
    assert not expected.satisfied("ns/a")
    assert expected.satisfied("ns/b")
    expected.creation_observed("ns/a")
    assert expected.satisfied("ns/a")


def test_an_unexpected_creation_does_not_pay_for_a_later_one() -> None:
    expected = Expectations()
    expected.creation_observed("ns/a")
    expected.expect_creations("ns/a")
    assert not expected.satisfied("ns/a")


def test_deletions_are_by_uid_and_may_be_seen_twice() -> None:
    expected = Expectations()
    expected.expect_deletions("ns/a", ["u1", "u2"])
    expected.deletion_observed("ns/a", "u1")
    expected.deletion_observed("ns/a", "u1")
    assert not expected.satisfied("ns/a")
    expected.deletion_observed("ns/a", "u2")
    assert expected.satisfied("ns/a")


def test_a_lost_event_blocks_for_five_minutes_at_most() -> None:
    clock = FakeClock()
    expected = Expectations(clock)
    expected.expect_creations("ns/a")
    clock.step(299)
    assert not expected.satisfied("ns/a")
    clock.step(2)
    assert expected.satisfied("ns/a")
    expected.expect_creations("ns/a")
    expected.creation_observed("ns/a")
    assert expected.satisfied("ns/a"), "the overdue one was forgotten"


def test_forget() -> None:
    expected = Expectations()
    expected.expect_creations("ns/a")
    expected.forget("ns/a")
    assert expected.satisfied("ns/a")
