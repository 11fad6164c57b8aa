"""Label selectors: whether they match, what is wrong with one, and how they read as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from virt_core.apis.meta import LabelSelector, LabelSelectorRequirement
from virt_core.apis.scheduling import NodeSelectorRequirement

Requirement = LabelSelectorRequirement | NodeSelectorRequirement

IN = "In"
NOT_IN = "NotIn"
EXISTS = "Exists"
DOES_NOT_EXIST = "DoesNotExist"
GREATER = "Gt"
LESS = "Lt"
WITH_VALUES = (IN, NOT_IN)
WITHOUT_VALUES = (EXISTS, DOES_NOT_EXIST)
ONE_NUMBER = (GREATER, LESS)
#: What a requirement on a node may say; those on other objects know no comparison.
NODE_OPERATORS = WITH_VALUES + WITHOUT_VALUES + ONE_NUMBER


def is_empty(selector: LabelSelector) -> bool:
    return not selector.match_labels and not selector.match_expressions


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether labels have all that the selector wants. An empty one wants nothing."""
    plain = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return plain and all_hold(selector.match_expressions, labels)


def chooses(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """As `matches`, but an empty selector chooses nothing: a set that owns all of its namespace is a mistake."""
    return not is_empty(selector) and matches(selector, labels)


def all_hold(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    return all(_holds(requirement, labels) for requirement in requirements)


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    operator = requirement.operator
    if operator in WITH_VALUES:
        return (value is not None and value in requirement.values) == (operator == IN)
    if operator in WITHOUT_VALUES:
        return (value is not None) == (operator == EXISTS)
    return operator in ONE_NUMBER and _compares(operator, value, requirement.values)


def _compares(operator: str, value: str | None, values: list[str]) -> bool:
    try:
        left, right = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == GREATER else left < right


def flaw(selector: LabelSelector) -> str:
    """What is wrong with the selector; empty when nothing is."""
    for expression in selector.match_expressions:
        if not expression.key:
            return "a requirement needs a key"
        if expression.operator not in WITH_VALUES + WITHOUT_VALUES:
            return f"{expression.operator!r} is not an operator of label selectors"
        if (expression.operator in WITH_VALUES) != bool(expression.values):
            return f"{expression.operator} {'needs' if expression.operator in WITH_VALUES else 'takes no'} values"
    return ""


def text(selector: LabelSelector) -> str:
    """As `kubectl -l` takes it, for the scale subresource."""
    terms = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for requirement in selector.match_expressions:
        values = ",".join(requirement.values)
        known = {
            IN: f"{requirement.key} in ({values})",
            NOT_IN: f"{requirement.key} notin ({values})",
            EXISTS: requirement.key,
            DOES_NOT_EXIST: f"!{requirement.key}",
        }
        terms.append(known[requirement.operator])
    return ",".join(terms)
