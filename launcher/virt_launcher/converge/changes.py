"""The words of a difference: changes of devices, in the order in which they are made, and what needs a restart."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class Act(enum.Enum):
    UPDATE = "changed"
    DETACH = "detached"
    ATTACH = "attached"


@dataclass(frozen=True, slots=True)
class DeviceChange:
    act: Act
    #: The tag of its element: disk, interface, controller.
    tag: str
    #: How the user calls it; for a device without a name what it is.
    name: str
    #: As it shall be; for a device that goes, as it is.
    device: Any

    @property
    def what(self) -> str:
        return f'{self.tag} "{self.name}"'


@dataclass(frozen=True, slots=True)
class MoreProcessors:
    """As many as the machine shall have."""

    count: int

    act: Act = Act.UPDATE

    @property
    def what(self) -> str:
        return f"the number of processors (to {self.count})"


@dataclass(frozen=True, slots=True)
class NeedsRestart:
    """What the VMI asks for and the running machine cannot become."""

    #: The path in the VMI.
    field: str
    #: A sentence without a full stop.
    reason: str


Change = DeviceChange | MoreProcessors | NeedsRestart
