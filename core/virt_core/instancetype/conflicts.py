"""Where a machine and its instance type or preference disagree."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conflict:
    """A field that both want to set, or that does not reach what is needed."""

    field: str
    message: str
    #: True: a requirement of the preference is not met. Admission names another type of cause for those.
    unmet: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def taken(base: str, *path: str) -> Conflict:
    """The VM's author set what the instance type sets."""
    return Conflict(".".join((base, *path)), "the instance type sets this; leave it out of the VM")
