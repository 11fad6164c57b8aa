"""What a decision about an export is made from, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from virt_controller.notes import Note
from virt_core.apis import names
from virt_core.apis.export import VirtualMachineExportStatus
from virt_core.apis.pods import Pod
from virt_core.apis.services import Service
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine

#: Phases
PENDING, READY, SKIPPED, TERMINATED = "Pending", "Ready", "Skipped", "Terminated"
#: Conditions
CONDITION_READY, CONDITION_CLAIM, CONDITION_VOLUMES = "Ready", "PVCReady", "VolumesCreated"
#: Reasons of Ready
INITIALIZING, POD_PENDING, POD_READY, POD_COMPLETED = "Initializing", "PodPending", "PodReady", "PodCompleted"
IN_USE, NOT_FILLED, NAME_TAKEN = "InUse", "VolumesNotPopulated", "NameTaken"
CLAIM_MISSING, CLAIM_PENDING, CLAIM_BOUND = "PVCNotFound", "PVCPending", "PVCBound"
VM_MISSING, VM_EMPTY = "VMNotFound", "VMNoVolumes"
SNAPSHOT_MISSING, SNAPSHOT_EMPTY, SNAPSHOT_PENDING = "VMSnapshotNotFound", "VMSnapshotNoVolumes", "VMSnapshotNotReady"
VOLUMES_READY, VOLUMES_UNREADY, VOLUMES_UNMADE = "AllPVCsReady", "NotAllPVCsReady", "NotAllPVCsCreated"
#: Events
POD_CREATED, SECRET_CREATED, SERVICE_CREATED = "ExporterPodCreated", "SecretCreated", "ServiceCreated"
PAUSED, POD_ENDED, CREATE_FAILED = "ExportPaused", "ExporterPodFailedOrCompleted", names.REASON_FAILED_CREATE

#: On the exporter Pod: which certificate it shows, and what it was made to serve.
KEY_CERTIFICATE = "virtpod.io/export-certificate"
KEY_PLAN = "virtpod.io/export-plan"


@dataclass(frozen=True, slots=True)
class Exported:
    """A claim that is served."""

    name: str  #: As links call it.
    claim: PersistentVolumeClaim
    disk: bool  #: Whether a disk is in it, or files.

    @property
    def block(self) -> bool:
        return self.claim.spec.volume_mode == names.VOLUME_MODE_BLOCK


@dataclass(frozen=True, slots=True)
class Said:
    """What a condition says."""

    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """What an export is of, as it stands now."""

    volumes: tuple[Exported, ...] = ()
    #: Why nothing can be served now; empty reason: it can.
    reason: str = ""
    message: str = ""
    #: There is nothing to serve, and nothing to wait for.
    empty: bool = False
    #: A further condition, by its type.
    condition: tuple[str, Said] | None = None
    #: The VM whose manifest goes with it, and its name.
    vm: VirtualMachine | None = None
    vm_name: str = ""
    #: Claims that must be made first.
    wanted: tuple[PersistentVolumeClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    source: Source
    pod: Pod | None = None
    service: Service | None = None
    #: Somebody else has something of a name that we need.
    taken: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    status: VirtualMachineExportStatus
    create_claims: bool = False
    create_service: bool = False
    create_token: bool = False
    create_pod: bool = False
    #: The Pod's certificate is missing.
    certify: bool = False
    delete_pod: bool = False
    delete_export: bool = False
    notes: tuple[Note, ...] = field(default=())
    recheck_s: float | None = None
