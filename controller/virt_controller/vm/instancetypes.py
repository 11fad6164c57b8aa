"""Instance types and preferences of VMs: a VM keeps the state it was first seen with; its VMIs are made from that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from virt_controller.vm.expand import Expanded, ExpansionError
from virt_controller.vm.setup import template_spec
from virt_core.apis import names
from virt_core.apis.apps import ControllerRevision
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.vm import VirtualMachine
from virt_core.instancetype import (
    Capture,
    Lookup,
    NotFoundError,
    annotations_for,
    capture,
    expand_vm,
    modernized,
    resolve,
    same_content,
    shape,
    unused_revisions,
    wants_expansion,
)
from virt_core.instancetype.expand import ConflictError
from virt_core.kube.client import KubeClient
from virt_core.kube.clusterconfig import ClusterConfig
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_core.kube.patch import op


class InstancetypeExpander:
    def __init__(self, client: KubeClient, lookup: Lookup, config: Callable[[], ClusterConfig]) -> None:
        self._client, self._lookup, self._config = client, lookup, config

    def expand(self, vm: VirtualMachine) -> Expanded:
        """The spec of the VM's next VMI. Raises ExpansionError."""
        spec = template_spec(vm)
        if not _names_any(vm):
            return Expanded(spec)
        template = vm.spec.template
        given = template.metadata if template is not None and template.metadata is not None else ObjectMeta()
        metadata = from_plain(to_plain(given), ObjectMeta)
        try:
            conflicts = shape(spec, metadata, resolve(vm, self._lookup), self._config().default_network_interface)
        except NotFoundError as error:
            raise _missing(error) from error
        if conflicts:
            raise ExpansionError("; ".join(str(conflict) for conflict in conflicts))
        return Expanded(spec, metadata.annotations | annotations_for(vm))

    def keep(self, vm: VirtualMachine) -> Capture:
        """Stores what the VM names, if that was not done yet, or in an older form. Raises ExpansionError."""
        if not _names_any(vm):
            return Capture()
        try:
            found = modernized(vm, capture(vm, self._lookup), self._lookup)
        except NotFoundError as error:
            raise _missing(error) from error
        for revision in found.revisions:
            self._store(revision)
        return found

    def forget(self, vm: VirtualMachine, replaced: tuple[str, ...] = ()) -> None:
        """Deletes what was stored for the VM and nothing points to any more. Somebody else's is left alone."""
        for name in (*unused_revisions(vm), *replaced):
            try:
                found = self._client.get(ControllerRevision, name, vm.metadata.namespace)
                if any(ref.uid == vm.metadata.uid for ref in found.metadata.owner_references):
                    self._client.delete(ControllerRevision, name, vm.metadata.namespace, uid=found.metadata.uid)
            except NotFound:
                continue

    def _store(self, revision: ControllerRevision) -> None:
        """One that is there already is of the same object in the same state, says its name; but anybody can name."""
        try:
            self._client.create(revision)
        except AlreadyExists:
            there = self._client.get(ControllerRevision, revision.metadata.name, revision.metadata.namespace)
            if not same_content(there, revision):
                words = f"ControllerRevision {revision.metadata.name} already exists with other content"
                raise ExpansionError(words) from None

    def written_out(self, vm: VirtualMachine) -> list[dict[str, Any]]:
        """The change of the VM that makes it independent of both, if the cluster wants that."""
        if not wants_expansion(vm, self._config().reference_policy):
            return []
        expanded = self.without_references(vm)
        return [op.add("/spec", replace(expanded.spec, instancetype=None, preference=None))]

    def without_references(self, vm: VirtualMachine) -> VirtualMachine:
        """A VM that means the same without either. Raises ExpansionError."""
        try:
            return expand_vm(vm, self._lookup, self._config().default_network_interface)
        except NotFoundError as error:
            raise _missing(error) from error
        except ConflictError as error:
            raise ExpansionError(str(error)) from error


def _missing(error: NotFoundError) -> ExpansionError:
    preference = error.field.startswith("spec.preference")
    reason = names.REASON_FAILED_FIND_PREFERENCE if preference else names.REASON_FAILED_FIND_INSTANCETYPE
    return ExpansionError(str(error), reason)


def _names_any(vm: VirtualMachine) -> bool:
    return vm.spec.instancetype is not None or vm.spec.preference is not None
