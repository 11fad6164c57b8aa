"""The pool controller: lets `decide` decide and does what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from virt_controller.pool import decide as rules
from virt_controller.pool.naming import free_numbers, make_vm, number_of, renewed, revision_name, spec_for, template_of
from virt_controller.pool.preserve import detach_volumes
from virt_controller.sets.controller import SetController
from virt_controller.sets.members import CONTROLLER_INDEX, conditions
from virt_core.apis import names
from virt_core.apis.apps import ControllerRevision
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Node
from virt_core.apis.pool import VirtualMachinePool
from virt_core.apis.registry import owner_reference
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.controller import Result
from virt_core.kube.errors import AlreadyExists, ApiError, NotFound
from virt_core.kube.expectations import TIMEOUT_S
from virt_core.kube.informer import Informer
from virt_core.kube.patch import op, pointer
from virt_core.kube.writes import write_operations

KIND = "VirtualMachinePool"
APP_REVISION = "pool-revision"
_TEMPLATE = "virtualMachineTemplate"


class PoolController(SetController[VirtualMachinePool, VirtualMachine]):
    vmis: Informer[VirtualMachineInstance]
    nodes: Informer[Node]
    revisions: Informer[ControllerRevision]

    def use(
        self, vmis: Informer[VirtualMachineInstance], nodes: Informer[Node], revisions: Informer[ControllerRevision]
    ) -> None:
        """What a pool looks at beside its VMs. Before the first reconcile."""
        self.vmis, self.nodes, self.revisions = vmis, nodes, revisions

    def reconcile(self, key: str) -> Result | None:
        cached = self.sets.get(key)
        if cached is None:
            self.expectations.forget(key)
            return None
        if not self.expectations.satisfied(key):
            return Result(TIMEOUT_S)
        pool = self.writes.freshest(cached)
        vms = self.owned(pool, pool.spec.selector)
        members = self._members(pool, vms)
        decision = rules.decide(pool, members, self.clock.now())
        problem: ApiError | None = None
        try:
            self._act(pool, vms, members.templates, decision)
        except ApiError as error:
            problem = error
        self._tell(pool, vms, problem)
        if problem is not None:
            raise problem
        return Result(decision.recheck_s) if decision.recheck_s else None

    def _members(self, pool: VirtualMachinePool, vms: Sequence[VirtualMachine]) -> rules.Members:
        vmis = {vm.metadata.name: self.vmis.get(f"{vm.metadata.namespace}/{vm.metadata.name}") for vm in vms}
        known = self.revisions.by_index(CONTROLLER_INDEX, pool.metadata.uid)
        return rules.Members(
            vms=vms,
            vmis={name: vmi for name, vmi in vmis.items() if vmi is not None},
            templates={r.metadata.name: (r.data or {}).get(_TEMPLATE) or {} for r in known},
            node_labels=self._node_labels,
        )

    def _node_labels(self, vm: VirtualMachine) -> Mapping[str, str]:
        vmi = self.vmis.get(f"{vm.metadata.namespace}/{vm.metadata.name}")
        node = self.nodes.get(vmi.status.node_name) if vmi is not None else None
        return node.metadata.labels if node is not None else {}

    def _act(
        self,
        pool: VirtualMachinePool,
        vms: Sequence[VirtualMachine],
        templates: Mapping[str, dict[str, Any]],
        decision: rules.Decision,
    ) -> None:
        if decision.create or decision.update:
            revision = self._revision(pool, templates)
            numbers = free_numbers(pool.metadata.name, self._taken(pool))
            for _ in range(decision.create):
                self.create(pool, make_vm(pool, next(numbers), revision))
            for vm in decision.update:
                self._renew(pool, vm, revision)
        if decision.delete and rules.preserves_state(pool):
            for vm in decision.delete:
                detach_volumes(self.client, vm)
        self.delete(pool, decision.delete)
        for vmi in decision.restart:
            self._restart(vmi)
        if not decision.create and not decision.update:
            self._forget_revisions(pool, vms)

    def _taken(self, pool: VirtualMachinePool) -> list[str]:
        return [vm.metadata.name for vm in self.members.list() if vm.metadata.namespace == pool.metadata.namespace]

    def _revision(self, pool: VirtualMachinePool, templates: Mapping[str, dict[str, Any]]) -> str:
        """The name of a revision that holds the current template; made if there is none."""
        current = template_of(pool)
        for name, template in templates.items():
            if template == current:
                return name
        revision = ControllerRevision(
            metadata=ObjectMeta(
                name=revision_name(pool, pool.metadata.generation),
                namespace=pool.metadata.namespace,
                labels={names.LABEL_APP: APP_REVISION},
                owner_references=[owner_reference(pool)],
            ),
            data={_TEMPLATE: current},
            revision=pool.metadata.generation,
        )
        try:
            self.client.create(revision)
        except AlreadyExists:
            pass  # Made a moment ago; the informer does not show it yet.
        return revision.metadata.name

    def _renew(self, pool: VirtualMachinePool, vm: VirtualMachine, revision: str) -> None:
        number = number_of(vm.metadata.name) or 0
        label = pointer("metadata", "labels", names.LABEL_POOL_REVISION)
        operations = [op.add("/spec", renewed(vm, spec_for(pool, number, revision))), op.add(label, revision)]
        if not vm.metadata.labels:
            operations.insert(1, op.add("/metadata/labels", {}))
        try:
            write_operations(self.client, vm, operations)
        except NotFound:
            return

    def _restart(self, vmi: VirtualMachineInstance) -> None:
        meta = vmi.metadata
        try:
            self.client.delete(VirtualMachineInstance, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    def _forget_revisions(self, pool: VirtualMachinePool, vms: Sequence[VirtualMachine]) -> None:
        """Those that no VM and no VMI was made from any more."""
        used = {vm.metadata.labels.get(names.LABEL_POOL_REVISION) for vm in vms}
        for vm in vms:
            if vmi := self.vmis.get(f"{vm.metadata.namespace}/{vm.metadata.name}"):
                used.add(vmi.metadata.labels.get(names.LABEL_POOL_REVISION))
        for revision in self.revisions.by_index(CONTROLLER_INDEX, pool.metadata.uid):
            if revision.metadata.name not in used and revision.revision < pool.metadata.generation:
                try:
                    self.client.delete(ControllerRevision, revision.metadata.name, revision.metadata.namespace)
                except NotFound:
                    continue

    def _tell(self, pool: VirtualMachinePool, vms: Sequence[VirtualMachine], problem: ApiError | None) -> None:
        status = rules.status(pool, vms)
        failure = (names.EVENT_FAILED_CREATE, str(problem)) if problem is not None else None
        told = conditions(status.conditions, paused=pool.spec.paused, failure=failure, now=self.clock.now())
        self.write(pool, replace(pool, status=replace(status, conditions=told)))
