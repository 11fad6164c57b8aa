"""What a VM's template becomes with instance type and preference: the contract between the controller and them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from virt_core.apis import names
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.instancetype import Capture


class ExpansionError(Exception):
    """The VM cannot become a VMI: its instance type is missing, or contradicts it. `reason` is a condition's word."""

    def __init__(self, message: str, reason: str = names.REASON_FAILED_CREATE) -> None:
        super().__init__(message)
        self.reason = reason


def create_reason(error: Exception) -> str:
    return error.reason if isinstance(error, ExpansionError) else names.REASON_FAILED_CREATE


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
        """Stores what the VM names, in today's form; gives the references that are new."""
        ...

    def written_out(self, vm: VirtualMachine) -> list[dict[str, Any]]:
        """The change that makes the VM independent of both, if the cluster wants that."""
        ...

    def forget(self, vm: VirtualMachine, replaced: tuple[str, ...]) -> None:
        """Deletes what was stored for the VM and nothing points to any more, or was replaced. Raises ApiError."""
        ...
