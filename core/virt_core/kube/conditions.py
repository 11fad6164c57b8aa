"""Reading and writing status conditions. The order of the list stays, since it is part of what a patch compares."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from virt_core.apis.meta import Condition
from virt_core.runtime.times import rfc3339


def get_condition(conditions: Iterable[Condition], type: str) -> Condition | None:
    return next((c for c in conditions if c.type == type), None)


def is_true(conditions: Iterable[Condition], type: str) -> bool:
    condition = get_condition(conditions, type)
    return condition is not None and condition.status == "True"


def set_condition(  # noqa: PLR0917 - a condition has that many parts
    conditions: list[Condition], type: str, status: str, reason: str = "", message: str = "", now: datetime | str = ""
) -> bool:
    """Sets a condition in place; True when anything changed. The transition time moves only with the status."""
    moment = rfc3339(now) if isinstance(now, datetime) else now or None
    found = get_condition(conditions, type)
    if found is None:
        conditions.append(
            Condition(type=type, status=status, reason=reason, message=message, last_transition_time=moment)
        )
        return True
    if (found.status, found.reason, found.message) == (status, reason, message):
        return False
    if found.status != status:
        found.last_transition_time = moment
    found.status, found.reason, found.message = status, reason, message
    return True


def remove_condition(conditions: list[Condition], type: str) -> bool:
    """True when there was one."""
    kept = [c for c in conditions if c.type != type]
    changed = len(kept) != len(conditions)
    conditions[:] = kept
    return changed
