"""The replica set controller: lets `decide` decide and does what it says."""

from __future__ import annotations

from msgspec.structs import replace

from virt_controller.replicaset import decide as rules
from virt_controller.sets.controller import SetController
from virt_controller.sets.members import conditions
from virt_core.apis import names
from virt_core.apis.replicaset import VirtualMachineInstanceReplicaSet
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.controller import Result
from virt_core.kube.errors import ApiError
from virt_core.kube.expectations import TIMEOUT_S

KIND = "VirtualMachineInstanceReplicaSet"


class ReplicaSetController(SetController[VirtualMachineInstanceReplicaSet, VirtualMachineInstance]):
    def reconcile(self, key: str) -> Result | None:
        cached = self.sets.get(key)
        if cached is None:
            self.expectations.forget(key)
            return None
        if not self.expectations.satisfied(key):
            return Result(TIMEOUT_S)
        rs = self.writes.freshest(cached)
        vmis = self.owned(rs, rs.spec.selector)
        decision = rules.decide(rs, vmis)
        problem: ApiError | None = None
        try:
            for _ in range(decision.create):
                self.create(rs, rules.make_vmi(rs))
            self.delete(rs, decision.delete)
        except ApiError as error:
            problem = error
        self._tell(rs, vmis, problem)
        if problem is not None:
            raise problem
        return None

    def _tell(
        self,
        rs: VirtualMachineInstanceReplicaSet,
        vmis: list[VirtualMachineInstance],
        problem: ApiError | None,
    ) -> None:
        status = rules.status(rs, vmis)
        failure = (names.EVENT_FAILED_CREATE, str(problem)) if problem is not None else None
        told = conditions(status.conditions, paused=rs.spec.paused, failure=failure, now=self.clock.now())
        self.write(rs, replace(rs, status=replace(status, conditions=told)))
