"""matchConditions: expressions that decide, after rules and selectors, whether a webhook is asked at all."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver import cel
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.hooks import Object
from virt_local.apiserver.schema.validate import bad_value

_VARIABLES = ("object", "oldObject", "request")


class ConditionFailed(Exception):
    """An expression could not be evaluated for this request; the text says which and why."""


def concerned(conditions: list[Object], question: Object) -> bool:
    """True when all conditions hold. One that does not decides, whatever befalls the others."""
    if not conditions:
        return True
    failure: ConditionFailed | None = None
    values = _values(question)
    for condition in conditions:
        expression = cel.compile_expression(str(condition.get("expression")))
        try:
            if not expression.holds(values):
                return False
        except cel.Failed as error:
            failure = ConditionFailed(f"expression '{expression.text}' resulted in error: {error}")
    if failure is not None:
        raise failure
    return True


def _values(question: Object) -> dict[str, Any]:
    request = {key: value for key, value in question.items() if key not in ("object", "oldObject")}
    request.setdefault("name", "")
    request.setdefault("namespace", "")
    return {"object": question.get("object"), "oldObject": question.get("oldObject"), "request": request}


def check_conditions(conditions: list[Object], path: str) -> list[Cause]:
    """What is wrong with the expressions of a webhook that somebody writes."""
    causes: list[Cause] = []
    for index, condition in enumerate(conditions):
        text = str(condition.get("expression") or "")
        try:
            expression = cel.compile_expression(text)
            if expression.uses("authorizer"):
                raise cel.BadExpression("virt-local has no authorizer in expressions")
        except cel.BadExpression as error:
            causes.append(bad_value(f"{path}[{index}].expression", text, str(error)))
    return causes
