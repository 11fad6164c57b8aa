"""One reconciliation of one VM: what was seen, what was done, what is to be told."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from virt_controller.vm.printable import Volumes
from virt_controller.vm.status import Outcome
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance


@dataclass(slots=True)
class Reconciliation:
    vm: VirtualMachine
    vmi: VirtualMachineInstance | None
    now: datetime
    #: Somebody else's VMI has the VM's name.
    foreign: bool = False
    volumes: Volumes = field(default_factory=Volumes)
    outcome: Outcome = field(default_factory=Outcome)
    starting: bool = False
    stopping: bool = False
    #: Revisions that newer ones stand for; they go once the status no longer points to them.
    replaced: tuple[str, ...] = ()
    #: What is under way is due again then.
    wait_s: float = 0.0
    #: Raised at the end, so that the VM is tried again.
    error: Exception | None = None

    def note(self, **changes: Any) -> None:
        self.outcome = dataclasses.replace(self.outcome, **changes)
