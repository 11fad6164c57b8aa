"""Instance types and preferences in the state that a VM has them: kept for a snapshot, given back to a restored VM."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from virt_core.apis.apps import ControllerRevision
from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.registry import owner_reference
from virt_core.apis.snapshot import short_name
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec
from virt_core.instancetype.find import captured
from virt_core.instancetype.revisions import same_content
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_core.kube.patch import op, pointer
from virt_core.kube.writes import write_operations


def renamed(name: str, old: str, new: str) -> str:
    found = name.replace(old, new, 1)
    return found if found != name and len(found) <= 253 else short_name(new, name[-40:].strip("-."))


class Revisions:
    """Copies under another name. Raises ApiError."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def keep(
        self, vm: VirtualMachine, spec: VirtualMachineSpec, name: str, owner: OwnerReference
    ) -> VirtualMachineSpec:
        """For a snapshot of that name: the spec with the copies in it."""
        for part, ref in (("instancetype", vm.status.instancetype_ref), ("preference", vm.status.preference_ref)):
            matcher: Any = getattr(spec, part)
            stored = captured(matcher, ref) if matcher is not None else ""
            if stored:
                copy = renamed(stored, vm.metadata.name, name)
                self._copy(stored, copy, vm.metadata.namespace, [owner])
                spec = replace(spec, **{part: replace(matcher, revision_name=copy)})
        return spec

    def give_back(
        self, spec: VirtualMachineSpec, snapshot: str, target: str, namespace: str, vm: VirtualMachine | None
    ) -> VirtualMachineSpec:
        """For a VM of that name, which may not be there yet. One that has the name and another content goes."""
        for part in ("instancetype", "preference"):
            matcher: Any = getattr(spec, part)
            if matcher is not None and matcher.revision_name:
                copy = renamed(matcher.revision_name, snapshot, target)
                self._copy(matcher.revision_name, copy, namespace, [owner_reference(vm)] if vm is not None else [])
                spec = replace(spec, **{part: replace(matcher, revision_name=copy)})
        return spec

    def adopt(self, vm: VirtualMachine) -> None:
        """Those that were made before their VM."""
        for matcher in (vm.spec.instancetype, vm.spec.preference):
            if matcher is None or not matcher.revision_name:
                continue
            try:
                found = self._client.get(ControllerRevision, matcher.revision_name, vm.metadata.namespace)
            except NotFound:
                continue
            if not found.metadata.owner_references:
                owners = [owner_reference(vm)]
                write_operations(self._client, found, [op.add(pointer("metadata", "ownerReferences"), owners)])

    def _copy(self, stored: str, copy: str, namespace: str, owners: list[OwnerReference]) -> None:
        found = self._client.get(ControllerRevision, stored, namespace)
        meta = ObjectMeta(name=copy, namespace=namespace, labels=dict(found.metadata.labels), owner_references=owners)
        wanted = ControllerRevision(metadata=meta, data=found.data, revision=found.revision)
        try:
            self._client.create(wanted)
        except AlreadyExists:
            there = self._client.get(ControllerRevision, copy, namespace)
            if same_content(there, wanted):
                return
            # A revision never changes: another one takes its place.
            self._client.delete(ControllerRevision, copy, namespace, uid=there.metadata.uid)
            self._client.create(wanted)
