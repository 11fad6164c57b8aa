from __future__ import annotations

from datetime import UTC, datetime

from virt_core.apis.meta import Condition
from virt_core.kube.conditions import get_condition, is_true, remove_condition, set_condition

T1, T2 = "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"


def test_a_new_condition_is_appended_with_its_time() -> None:
    conditions: list[Condition] = []
    assert set_condition(conditions, "Ready", "True", "Up", "all well", datetime(2026, 1, 1, tzinfo=UTC))
    assert conditions == [
        Condition(type="Ready", status="True", reason="Up", message="all well", last_transition_time=T1)
    ]


def test_the_same_again_changes_nothing() -> None:
    conditions: list[Condition] = []
    set_condition(conditions, "Ready", "True", "Up", "", T1)
    assert not set_condition(conditions, "Ready", "True", "Up", "", T2)
    assert conditions[0].last_transition_time == T1


def test_the_time_moves_only_with_the_status() -> None:
    conditions: list[Condition] = []
    set_condition(conditions, "Ready", "False", "A", "", T1)
    assert set_condition(conditions, "Ready", "False", "B", "", T2)
    assert conditions[0].last_transition_time == T1
    assert set_condition(conditions, "Ready", "True", "B", "", T2)
    assert conditions[0].last_transition_time == T2


def test_order_stays_and_removal_works() -> None:
    conditions: list[Condition] = []
    for name in ("A", "B", "C"):
        set_condition(conditions, name, "True", now=T1)
    set_condition(conditions, "B", "False", now=T2)
    assert [c.type for c in conditions] == ["A", "B", "C"]
    assert remove_condition(conditions, "B")
    assert not remove_condition(conditions, "B")
    assert get_condition(conditions, "B") is None
    assert is_true(conditions, "A")
    assert not is_true(conditions, "B")
