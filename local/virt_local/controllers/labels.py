"""Label selectors of API structs against labels."""

from __future__ import annotations

from collections.abc import Mapping

from virt_core.apis.meta import LabelSelector


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """No selector selects nothing, an empty one everything: as the API defines it for Pod affinity."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(holds(each.key, each.operator, each.values, labels) for each in selector.match_expressions)


def holds(key: str, operator: str, values: list[str], labels: Mapping[str, str]) -> bool:
    value = labels.get(key)
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(operator, value, values)
    return False


def _compares(operator: str, value: str | None, values: list[str]) -> bool:
    try:
        have, want = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return have > want if operator == "Gt" else have < want
