"""The VMI that a VM runs as: its template, with an owner and a name for the firmware. Pure."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

from msgspec.structs import replace

from virt_controller.vm import facts, hibernation
from virt_controller.vm.memorydump import without_dumps
from virt_core.apis import names
from virt_core.apis.apps import ControllerRevision
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.devices import Input
from virt_core.apis.domain import Firmware
from virt_core.apis.hibernation import VirtualMachineHibernation
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.registry import owner_reference
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import ChangedBlockTrackingStatus, VirtualMachineInstanceStatus

#: Old VMs have no UUID in their template; this makes one that is the same at every start.
_FIRMWARE_NAMESPACE = UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")
_TABLET = "default-0"
_OURS = frozenset({names.ANNOTATION_RESUME_FROM, names.ANNOTATION_SAVE_STATE})


def template_spec(vm: VirtualMachine) -> VirtualMachineInstanceSpec:
    """A copy of the template's spec, to be changed at will."""
    template = vm.spec.template
    plain = to_plain(template.spec) if template is not None else {}
    return from_plain(plain, VirtualMachineInstanceSpec)


def template_marks(spec: VirtualMachineSpec) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and annotations that a VMI gets from the template."""
    template = spec.template
    given = template.metadata if template is not None and template.metadata is not None else ObjectMeta()
    return given.labels, given.annotations


def firmware_uuid(vm: VirtualMachine) -> str:
    firmware = vm.spec.template.spec.domain.firmware if vm.spec.template is not None else None
    given = firmware.uuid if firmware is not None else ""
    return given or str(uuid5(_FIRMWARE_NAMESPACE, vm.metadata.name))


def make_vmi(
    vm: VirtualMachine,
    spec: VirtualMachineInstanceSpec,
    *,
    annotations: dict[str, str] | None = None,
    receive: bool = False,
    resume: VirtualMachineHibernation | None = None,
    tracking: ChangedBlockTrackingStatus | None = None,
) -> VirtualMachineInstance:
    """`spec` is the template's, with instance type and preference applied; it becomes the VMI's. `resume`: the state
    that the machine goes on from."""
    template = vm.spec.template
    given = template.metadata if template is not None and template.metadata is not None else ObjectMeta()
    notes = given.annotations | (annotations or {})
    notes |= {names.ANNOTATION_VM_GENERATION: str(vm.metadata.generation)}
    # What people write there is not what a state is known by.
    notes = {key: text for key, text in notes.items() if key not in _OURS}
    if resume is not None:
        notes |= hibernation.resuming(spec, resume)
    if receive:
        notes[names.ANNOTATION_CREATE_MIGRATION_TARGET] = "true"
    spec.domain.firmware = replace(spec.domain.firmware or Firmware(), uuid=firmware_uuid(vm))
    if facts.start_paused_requested(vm):
        spec.start_strategy = "Paused"
    _attach_tablet(spec)
    spec.volumes = without_dumps(spec.volumes)
    metadata = ObjectMeta(
        name=vm.metadata.name,
        namespace=vm.metadata.namespace,
        labels=dict(given.labels),
        annotations=notes,
        finalizers=[names.FINALIZER_VM_CONTROLLER],
        owner_references=[owner_reference(vm)],
    )
    status = VirtualMachineInstanceStatus(changed_block_tracking=tracking)
    return VirtualMachineInstance(metadata=metadata, spec=spec, status=status)


def _attach_tablet(spec: VirtualMachineInstanceSpec) -> None:
    devices = spec.domain.devices
    if devices.autoattach_input_device and not devices.inputs:
        devices.inputs = [Input(name=_TABLET, type="tablet")]
    devices.inputs = [i if i.type else replace(i, type="tablet") for i in devices.inputs]


def start_revision(vm: VirtualMachine) -> ControllerRevision:
    """The VM's spec as it was when its VMI was made."""
    metadata = ObjectMeta(
        name=facts.revision_name(vm.metadata.uid, vm.metadata.generation),
        namespace=vm.metadata.namespace,
        labels={names.LABEL_APP: names.APP_VM_REVISION},
        owner_references=[owner_reference(vm)],
    )
    return ControllerRevision(metadata=metadata, data={"spec": to_plain(vm.spec)}, revision=vm.metadata.generation)


def spec_of(revision: ControllerRevision) -> VirtualMachineSpec:
    data: dict[str, Any] = (revision.data or {}).get("spec") or {}
    return from_plain(data, VirtualMachineSpec)
