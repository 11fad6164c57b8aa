"""Label selectors: whether they match, and how they read as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from virt_core.apis.meta import LabelSelector, LabelSelectorRequirement
from virt_core.apis.scheduling import NodeSelectorRequirement


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """An empty selector matches nothing here: a set that would own every object of its namespace is a mistake."""
    if not selector.match_labels and not selector.match_expressions:
        return False
    plain = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return plain and all_hold(selector.match_expressions, labels)


def all_hold(
    requirements: Iterable[LabelSelectorRequirement] | Iterable[NodeSelectorRequirement], labels: Mapping[str, str]
) -> bool:
    return all(_holds(requirement, labels) for requirement in requirements)


def _holds(requirement: LabelSelectorRequirement | NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    if requirement.operator == "In":
        return value is not None and value in requirement.values
    if requirement.operator == "NotIn":
        return value not in requirement.values
    if requirement.operator in ("Gt", "Lt"):
        return _compares(requirement.operator, value, requirement.values)
    return (value is not None) == (requirement.operator == "Exists")


def _compares(operator: str, value: str | None, values: list[str]) -> bool:
    try:
        left, right = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def text(selector: LabelSelector) -> str:
    """As `kubectl -l` takes it, for the scale subresource."""
    terms = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for requirement in selector.match_expressions:
        values = ",".join(requirement.values)
        known = {
            "In": f"{requirement.key} in ({values})",
            "NotIn": f"{requirement.key} notin ({values})",
            "Exists": requirement.key,
            "DoesNotExist": f"!{requirement.key}",
        }
        terms.append(known[requirement.operator])
    return ",".join(terms)
