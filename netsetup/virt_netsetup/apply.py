"""Brings a list of steps about, or none of them."""

from __future__ import annotations

from collections.abc import Sequence

from virt_netsetup.model import NetsetupError
from virt_netsetup.steps import Step, World, describe, name_of


def apply(steps: Sequence[Step], world: World) -> int:
    """Returns how many steps changed something. After a failure what was changed is as it was before."""
    journal: list[Step] = []
    changed = 0
    for step in steps:
        try:
            if step.satisfied(world):
                continue
            # Before the step itself: one that fails half-way is undone too.
            journal.append(step.inverse(world))
            step.apply(world)
            changed += 1
        except (OSError, NetsetupError) as error:
            raise _failure(step, error, _undo(journal, world)) from error
    return changed


def _undo(journal: list[Step], world: World) -> list[str]:
    """Goes all the way back even if a step of it fails; returns what could not be undone."""
    problems = []
    for step in reversed(journal):
        try:
            if not step.satisfied(world):
                step.apply(world)
        except (OSError, NetsetupError) as error:
            problems.append(f"{describe(step)}: {error}")
    return problems


def _failure(step: Step, error: Exception, problems: list[str]) -> NetsetupError:
    if isinstance(error, NetsetupError):
        message, critical = error.message, error.critical
    else:
        message, critical = f"{describe(step)}: {error}", False
    if problems:
        message += "; undoing it failed too: " + "; ".join(problems)
    return NetsetupError(name_of(step), message, critical or bool(problems), undone=not problems)


def first_missing(steps: Sequence[Step], world: World) -> Step | None:
    """The first step whose state is not there: for `check`."""
    for step in steps:
        try:
            if not step.satisfied(world):
                return step
        except OSError:
            return step
    return None
