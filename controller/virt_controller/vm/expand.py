"""What a VM's template becomes with instance type and preference: the contract between the controller and them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.instancetype import Capture


class ExpansionError(Exception):
    """The VM can not become a VMI: its instance type is missing, or contradicts it."""


@dataclass(frozen=True, slots=True)
class Expanded:
    spec: VirtualMachineInstanceSpec
    annotations: dict[str, str] = field(default_factory=dict)


class Expander(Protocol):
    """The first three raise ExpansionError."""

    def expand(self, vm: VirtualMachine) -> Expanded:
        """The spec of the VM's next VMI."""
        ...

    def keep(self, vm: VirtualMachine) -> Capture:
        """Stores what the VM names; gives the references that are new."""
        ...

    def written_out(self, vm: VirtualMachine) -> list[dict[str, Any]]:
        """The change that makes the VM independent of both, if the cluster wants that."""
        ...

    def forget(self, vm: VirtualMachine) -> None:
        """Deletes what was stored for the VM and nothing points to any more. Raises ApiError."""
        ...
