"""All that an explanation is made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from virt_core.apis.datavolume import DataVolume
from virt_core.apis.migration import VirtualMachineInstanceMigration
from virt_core.apis.moveview import MoveProgress
from virt_core.apis.networkview import NetworkReport
from virt_core.apis.nodes import Event
from virt_core.apis.podroles import active_pod
from virt_core.apis.pods import Pod
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance


@dataclass(frozen=True)
class Facts:
    namespace: str
    name: str
    now: datetime
    vm: VirtualMachine | None = None
    vmi: VirtualMachineInstance | None = None
    pods: list[Pod] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    unread: tuple[str, ...] = ()
    #: The migration of the machine that is under way, else its last one.
    job: VirtualMachineInstanceMigration | None = None
    #: How that goes, as its node tells.
    progress: MoveProgress | None = None
    #: The DataVolumes that it waits for, as far as it does.
    disks: list[DataVolume] = field(default_factory=list)
    #: How far packets for the guest get, as its node tells.
    network: NetworkReport | None = None
    #: The instance of virt-local that all this runs on; None on Kubernetes.
    local_instance: str | None = None

    @property
    def phase(self) -> str:
        return self.vmi.status.phase if self.vmi else ""

    @property
    def pod(self) -> Pod | None:
        """The Pod that has the guest, or is to have it."""
        return active_pod(self.vmi, self.pods) if self.vmi is not None else None

    @property
    def node(self) -> str:
        """Where the machine is, or will be as soon as it was handed over."""
        return (self.vmi.status.node_name if self.vmi else "") or (self.pod.spec.node_name if self.pod else "")


def event_time(event: Event) -> str:
    return event.last_timestamp or event.event_time or event.first_timestamp or event.metadata.creation_timestamp or ""
