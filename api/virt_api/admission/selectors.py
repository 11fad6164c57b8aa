"""Label selectors: whether one can be meant, and whether labels fit it."""

from __future__ import annotations

from virt_core.apis.meta import LabelSelector, LabelSelectorRequirement

_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")


def flaw(selector: LabelSelector) -> str:
    """What is wrong with the selector; empty when nothing is."""
    for expression in selector.match_expressions:
        if not expression.key:
            return "a requirement needs a key"
        if expression.operator not in _WITH_VALUES + _WITHOUT_VALUES:
            return f"{expression.operator!r} is not an operator of label selectors"
        if (expression.operator in _WITH_VALUES) != bool(expression.values):
            return f"{expression.operator} {'needs' if expression.operator in _WITH_VALUES else 'takes no'} values"
    return ""


def fits(selector: LabelSelector, labels: dict[str, str]) -> bool:
    """Whether labels have all that the selector wants. An empty selector fits everything."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_holds(expression, labels) for expression in selector.match_expressions)


def _holds(expression: LabelSelectorRequirement, labels: dict[str, str]) -> bool:
    value = labels.get(expression.key)
    if expression.operator == "In":
        return value is not None and value in expression.values
    if expression.operator == "NotIn":
        return value not in expression.values
    return (value is not None) == (expression.operator == "Exists")
