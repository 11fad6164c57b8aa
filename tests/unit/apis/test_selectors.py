"""Label selectors: one evaluator for the API's admission, the controllers and virt-local."""

from __future__ import annotations

from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.meta import LabelSelector
from virt_core.apis.scheduling import NodeSelectorRequirement
from virt_core.apis.selectors import all_hold, chooses, flaw, matches, text


def _term(operator: str, *values: str, key: str = "a") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "expected", "words"),
    [
        ({"matchLabels": {"a": "1"}}, True, "a=1"),
        ({"matchLabels": {"a": "2"}}, False, "a=2"),
        ({"matchLabels": {"a": "1"}, **_term("Exists", key="b")}, False, "a=1,b"),
        ({}, True, ""),
        (_term("In", "1", "2"), True, "a in (1,2)"),
        (_term("In", "1", key="b"), False, "b in (1)"),
        (_term("NotIn", "1"), False, "a notin (1)"),
        (_term("NotIn", "1", key="b"), True, "b notin (1)"),
        (_term("Exists", key="b"), False, "b"),
        (_term("DoesNotExist", key="b"), True, "!b"),
    ],
)
def test_matching_and_text(selector: dict[str, Any], expected: bool, words: str) -> None:
    parsed = from_plain(selector, LabelSelector)
    assert matches(parsed, {"a": "1"}) is expected
    assert text(parsed) == words


def test_an_empty_selector_matches_everything_and_chooses_nothing() -> None:
    assert matches(LabelSelector(), {"a": "1"})
    assert not chooses(LabelSelector(), {"a": "1"})
    assert chooses(LabelSelector(match_labels={"a": "1"}), {"a": "1"})


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("Gt", "4", True),
        ("Gt", "5", False),
        ("Lt", "6", True),
        ("Lt", "5", False),
        ("Gt", "many", False),
        ("Near", "5", False),
    ],
)
def test_nodes_compare_numbers_and_an_unknown_operator_holds_nowhere(operator: str, value: str, expected: bool) -> None:
    assert all_hold([NodeSelectorRequirement("cores", operator, [value])], {"cores": "5"}) is expected
    assert not all_hold([NodeSelectorRequirement("cores", operator, [value])], {})


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        (_term("In", "1"), ""),
        (_term("Exists"), ""),
        (_term("Exists", key=""), "a requirement needs a key"),
        (_term("Gt", "1"), "'Gt' is not an operator of label selectors"),
        (_term("In"), "In needs values"),
        (_term("Exists", "1"), "Exists takes no values"),
    ],
)
def test_flaws(selector: dict[str, Any], problem: str) -> None:
    assert flaw(from_plain(selector, LabelSelector)) == problem
