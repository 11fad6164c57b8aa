"""VirtualMachineInstanceMigration: the wish to move a running machine to another node."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.meta import Condition, ObjectMeta, Time
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState
from virt_core.apis.names import API_VERSION


class VirtualMachineInstanceMigrationSource(Struct):
    """Send the machine to another cluster."""

    migration_id: str = field(name="migrationID")  #: The name that both sides know the migration by.
    connect_url: str = field(name="connectURL")  #: Where the other cluster listens.


class VirtualMachineInstanceMigrationTarget(Struct):
    """Receive the machine from another cluster."""

    migration_id: str = field(name="migrationID")  #: The name that both sides know the migration by.


class VirtualMachineInstanceMigrationSpec(Struct):
    """What shall move, and where to."""

    vmi_name: str = ""  #: The VMI in the same namespace.
    added_node_selector: dict[str, str] = {}  #: Labels that the target node must have, too.
    send_to: VirtualMachineInstanceMigrationSource | None = None  #: To another cluster.
    receive: VirtualMachineInstanceMigrationTarget | None = None  #: From another cluster.
    priority: str | None = None  #: system-critical, user-triggered or system-maintenance.


class VirtualMachineInstanceMigrationPhaseTransitionTimestamp(Struct):
    """When a phase began."""

    phase: str = ""  #: The phase.
    phase_transition_timestamp: Time | None = None  #: When it began.


class VirtualMachineInstanceMigrationStatus(Struct):
    """What became of a migration."""

    phase: str = ""  #: Pending, Scheduling, Scheduled, PreparingTarget, TargetReady, Running, Succeeded or Failed.
    conditions: list[Condition] = []  #: What is observed of it.
    #: When each phase began.
    phase_transition_timestamps: list[VirtualMachineInstanceMigrationPhaseTransitionTimestamp] = []
    migration_state: VirtualMachineInstanceMigrationState | None = None  #: How it went.
    synchronization_addresses: list[str] = []  #: Where the other cluster reaches this one.


class VirtualMachineInstanceMigration(Struct):
    """Moves a running VMI to another node."""

    api_version: str = API_VERSION
    kind: str = "VirtualMachineInstanceMigration"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: What shall move.
    spec: Annotated[VirtualMachineInstanceMigrationSpec, REQUIRED] = field(
        default_factory=VirtualMachineInstanceMigrationSpec
    )
    #: What became of it.
    status: VirtualMachineInstanceMigrationStatus = field(default_factory=VirtualMachineInstanceMigrationStatus)
