"""VirtualMachineClone: makes a VM from another one."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.meta import Condition, ObjectMeta, Time
from virt_core.apis.podparts import TypedLocalObjectReference

#: On a clone whose restore may have made claims for a VM that is not there yet.
FINALIZER_CLONE = "clone.kubevirt.io/vmclone-protection"


class VirtualMachineCloneTemplateFilters(Struct):
    """What of the template's metadata is taken over."""

    annotation_filters: list[str] | None = None  #: Annotations; all by default.
    label_filters: list[str] | None = None  #: Labels; all by default.


class VirtualMachineCloneSpec(Struct):
    """What is cloned."""

    #: A VM or a snapshot.
    source: Annotated[TypedLocalObjectReference, REQUIRED] = field(default_factory=TypedLocalObjectReference)
    target: TypedLocalObjectReference | None = None  #: The new VM.
    annotation_filters: list[str] | None = None  #: Annotations that are taken over; all by default.
    label_filters: list[str] | None = None  #: Labels that are taken over; all by default.
    #: What of the template's metadata is taken over.
    template: VirtualMachineCloneTemplateFilters = field(default_factory=VirtualMachineCloneTemplateFilters)
    new_mac_addresses: dict[str, str] = {}  #: MAC addresses by interface.
    new_sm_bios_serial: str | None = field(default=None, name="newSMBiosSerial")  #: The new serial number.
    patches: list[str] = []  #: JSON patches of the new VM.
    volume_name_policy: str | None = None  #: RandomizeNames (default) or PrefixTargetName.


class VirtualMachineCloneStatus(Struct):
    """What became of a clone."""

    phase: str = ""  #: SnapshotInProgress, CreatingTargetVM, RestoreInProgress, Succeeded, Failed or Unknown.
    conditions: list[Condition] = []  #: Ready and Progressing.
    snapshot_name: str | None = None  #: The snapshot in between.
    restore_name: str | None = None  #: The restore.
    target_name: str | None = None  #: The new VM.
    creation_time: Time | None = None  #: When it was done.


class VirtualMachineClone(Struct):
    """Makes a VM from another one."""

    api_version: str = "clone.kubevirt.io/v1beta1"
    kind: str = "VirtualMachineClone"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: What is cloned.
    spec: Annotated[VirtualMachineCloneSpec, REQUIRED] = field(default_factory=VirtualMachineCloneSpec)
    status: VirtualMachineCloneStatus = field(default_factory=VirtualMachineCloneStatus)  #: What became of it.
