"""What the VM controller does to other objects: makes, deletes, adopts and releases VMIs, keeps revisions."""

from __future__ import annotations

import contextlib
from typing import Any

from virt_controller.vm import facts
from virt_controller.vm.expand import Expanded
from virt_controller.vm.setup import make_vmi, spec_of, start_revision
from virt_core.apis import names
from virt_core.apis.apps import ControllerRevision
from virt_core.apis.facts import is_terminating
from virt_core.apis.hibernation import VirtualMachineHibernation
from virt_core.apis.registry import owner_reference
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import ChangedBlockTrackingStatus
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import AlreadyExists, ApiError, NotFound
from virt_core.kube.expectations import Expectations
from virt_core.kube.informer import Informer
from virt_core.kube.patch import MergePatch, op, pointer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.writes import OwnWrites, write_operations
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)


class Actions:
    def __init__(
        self,
        client: KubeClient,
        revisions: Informer[ControllerRevision],
        expectations: Expectations,
        recorder: EventRecorder,
        vmi_writes: OwnWrites[VirtualMachineInstance],
    ) -> None:
        self._client, self._revisions, self._recorder = client, revisions, recorder
        self._expectations, self._writes = expectations, vmi_writes

    def start(
        self,
        vm: VirtualMachine,
        expanded: Expanded,
        *,
        receive: bool,
        resume: VirtualMachineHibernation | None = None,
        tracking: ChangedBlockTrackingStatus | None = None,
    ) -> VirtualMachineInstance:
        """Revision first: a VMI without the spec it came from could not be compared with anything."""
        self._keep_revision(vm)
        words = expanded.annotations
        vmi = make_vmi(vm, expanded.spec, annotations=words, receive=receive, resume=resume, tracking=tracking)
        key = key_of(vm)
        self._expectations.expect_creations(key)
        try:
            created = self._client.create(vmi)
        except AlreadyExists:
            self._expectations.creation_observed(key)
            return self._existing(vm)
        except ApiError:
            self._expectations.creation_observed(key)
            raise
        self._writes.remember(created)
        self._recorder.event(vm, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_CREATE, "started: the VMI was made")
        return created

    def _existing(self, vm: VirtualMachine) -> VirtualMachineInstance:
        """Ours, if only the answer to its creation got lost."""
        found = self._client.get(VirtualMachineInstance, vm.metadata.name, vm.metadata.namespace)
        if not facts.owns(vm, found):
            raise AlreadyExists(
                409, "AlreadyExists", "there is already a VMI of this name, which does not belong to this VM"
            )
        return found

    def stop(self, vm: VirtualMachine, vmi: VirtualMachineInstance) -> None:
        key, meta = key_of(vm), vmi.metadata
        self._expectations.expect_deletions(key, [meta.uid])
        # Whoever deletes a VM may have asked to leave its VMI behind; the VMI's new freedom can reach us after the VM's
        # last change. So what has changed since we looked is not deleted.
        seen = meta.resource_version if is_terminating(vm) else ""
        try:
            self._client.delete(VirtualMachineInstance, meta.name, meta.namespace, uid=meta.uid, resource_version=seen)
        except NotFound:
            self._expectations.deletion_observed(key, meta.uid)
        except ApiError:
            self._expectations.deletion_observed(key, meta.uid)
            raise
        else:
            self._recorder.event(vm, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_DELETE, "stopped: the VMI is deleted")

    def adopt(self, vm: VirtualMachine, vmi: VirtualMachineInstance) -> VirtualMachineInstance:
        """A VMI that an earlier VM of the name was told to leave behind."""
        owners = [*vmi.metadata.owner_references, owner_reference(vm)]
        finalizers = [*vmi.metadata.finalizers]
        if names.FINALIZER_VM_CONTROLLER not in finalizers:
            finalizers.append(names.FINALIZER_VM_CONTROLLER)
        operations = [op.add("/metadata/ownerReferences", owners), op.add("/metadata/finalizers", finalizers)]
        return self.patch(vmi, operations)

    def release(self, vmi: VirtualMachineInstance) -> None:
        """What there was to learn from its end is written down: it may go."""
        if names.FINALIZER_VM_CONTROLLER in vmi.metadata.finalizers:
            kept = [f for f in vmi.metadata.finalizers if f != names.FINALIZER_VM_CONTROLLER]
            self.patch(vmi, [op.add(pointer("metadata", "finalizers"), kept)])

    def patch(self, vmi: VirtualMachineInstance, operations: list[dict[str, Any]]) -> VirtualMachineInstance:
        try:
            written = write_operations(self._client, vmi, operations)
        except NotFound:
            return vmi
        if written is not None:
            self._writes.remember(written)
        return written or vmi

    def note_dump(self, vm: VirtualMachine, claim: str, text: str) -> None:
        """On the claim, for whoever finds it later. One that is gone needs no note."""
        note = MergePatch({"metadata": {"annotations": {names.ANNOTATION_MEMORY_DUMP: text}}})
        with contextlib.suppress(NotFound):
            self._client.patch(PersistentVolumeClaim, claim, vm.metadata.namespace, note)

    def make_claim(self, claim: PersistentVolumeClaim) -> None:
        """One that is there has its name from the same machine, so it is the same."""
        with contextlib.suppress(AlreadyExists):
            self._client.create(claim)

    def drop_claim(self, vm: VirtualMachine, name: str) -> None:
        """Only one that was made for this VM."""
        try:
            found = self._client.get(PersistentVolumeClaim, name, vm.metadata.namespace)
            if any(ref.uid == vm.metadata.uid for ref in found.metadata.owner_references):
                self._client.delete(PersistentVolumeClaim, name, vm.metadata.namespace, uid=found.metadata.uid)
        except NotFound:
            return

    def _keep_revision(self, vm: VirtualMachine) -> None:
        revision = start_revision(vm)
        try:
            self._client.create(revision)
        except AlreadyExists:
            pass  # From an earlier start of the same generation, so with the same spec.
        for old in self._revisions.by_index("owner", vm.metadata.uid):
            if old.metadata.name != revision.metadata.name:
                self._delete_revision(old)

    def _delete_revision(self, revision: ControllerRevision) -> None:
        try:
            self._client.delete(ControllerRevision, revision.metadata.name, revision.metadata.namespace)
        except NotFound:
            return

    def started_spec(self, vmi: VirtualMachineInstance) -> VirtualMachineSpec | None:
        """The VM's spec that the VMI was made from, if it is still known."""
        name = vmi.status.virtual_machine_revision_name
        revision = self._revisions.get(f"{vmi.metadata.namespace}/{name}")
        return spec_of(revision) if revision is not None else None


def revision_owner(revision: ControllerRevision) -> list[str]:
    return [ref.uid for ref in revision.metadata.owner_references if ref.controller]
