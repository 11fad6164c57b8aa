"""The pool controller: lets `decide` decide and does what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from virt_controller.pool import decide as rules
from virt_controller.pool.naming import (
    former_pool,
    free_numbers,
    make_vm,
    number_of,
    relabelled,
    renewed,
    revision_name,
    spec_for,
    template_of,
)
from virt_controller.pool.preserve import detach_volumes
from virt_controller.sets.controller import SetController
from virt_controller.sets.members import CONTROLLER_INDEX, conditions, controller_of
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
from virt_core.kube.patch import op
from virt_core.kube.writes import difference, write_difference, write_operations

KIND = "VirtualMachinePool"
APP_REVISION = "pool-revision"
_TEMPLATE = "virtualMachineTemplate"


class PoolController(SetController[VirtualMachinePool, VirtualMachine]):
    #: A VM that somebody took out of a pool stays out.
    adopts = False
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
        self._let_go(key, cached)
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

    def _let_go(self, key: str, pool: VirtualMachinePool | None) -> None:
        """VMs that go, that were taken out, or whose pool is gone wait for us no longer."""
        for vm in self.members.list():
            if not rules.is_guarded(vm) or former_pool(vm) != key:
                continue
            if pool is not None and rules.is_member(pool, controller_of(vm)):
                if rules.is_alive(vm):
                    continue
                if rules.preserves_state(pool):
                    detach_volumes(self.client, vm)
            self._set_guard(vm, guarded=False)

    def _wake_namespace(self, obj: VirtualMachine) -> None:
        """Nobody takes it over, but it may still wait for the pool that it was taken out of."""
        if rules.is_guarded(obj):
            self.queue.add(former_pool(obj))

    def _set_guard(self, vm: VirtualMachine, *, guarded: bool) -> None:
        others = [name for name in vm.metadata.finalizers if name != names.FINALIZER_POOL]
        finalizers = [*others, names.FINALIZER_POOL] if guarded else others
        try:
            write_difference(self.client, vm, replace(vm, metadata=replace(vm.metadata, finalizers=finalizers)))
        except NotFound:
            return

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
        for vm in decision.guard:
            self._set_guard(vm, guarded=not rules.is_guarded(vm))
        if decision.create or decision.update:
            revision = self._revision(pool, templates)
            guards = [names.FINALIZER_POOL] if rules.preserves_state(pool) else []
            numbers = free_numbers(pool.metadata.name, self._taken(pool))
            for _ in range(decision.create):
                self.create(pool, make_vm(pool, next(numbers), revision, guards))
            for vm in decision.update:
                self._renew(pool, vm, templates, revision)
        for vm in decision.rebuild:
            self._set_guard(vm, guarded=False)
        self.delete(pool, (*decision.delete, *decision.rebuild))
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

    def _renew(
        self, pool: VirtualMachinePool, vm: VirtualMachine, templates: Mapping[str, dict[str, Any]], revision: str
    ) -> None:
        before = templates.get(vm.metadata.labels.get(names.LABEL_POOL_REVISION, ""), {})
        metadata = relabelled(vm, before, pool, revision)
        spec = renewed(vm, spec_for(pool, number_of(vm.metadata.name) or 0, revision))
        operations = [*difference(vm, replace(vm, metadata=metadata)), op.add("/spec", spec)]
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
