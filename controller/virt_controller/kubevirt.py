"""The status of the KubeVirt object: that it is in force, and what keeps its configuration from being so.

On Kubernetes an operator could install us; here nothing is left to deploy once this program runs, so the phase is
Deployed as soon as somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable

from virt_controller.update.decide import count
from virt_core import __version__
from virt_core.apis import names
from virt_core.apis.facts import is_terminating
from virt_core.apis.kubevirt import KubeVirt, KubeVirtStatus
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.clusterconfig import ConfigState
from virt_core.kube.conditions import set_condition
from virt_core.kube.controller import Result
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import MergePatch
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import clone, key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock
from virt_core.runtime.times import rfc3339

REASON_INVALID = "InvalidConfiguration"
REASON_READY = "AllComponentsReady"
REASON_SURPLUS = "AnotherKubeVirtIsInForce"


class KubeVirtController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        kubevirts: Informer[KubeVirt],
        state: Callable[[], ConfigState],
        vmis: Informer[VirtualMachineInstance],
        image: str,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client, self._kubevirts, self._state = client, kubevirts, state
        self._recorder, self._clock = recorder, clock
        self._vmis, self._image = vmis, image

        def changed(obj: KubeVirt) -> None:
            queue.add(key_of(obj))

        def counted(vmi: VirtualMachineInstance, old: VirtualMachineInstance | None = None) -> None:
            if count([vmi], image) or (old is not None and count([old], image)):
                for each in kubevirts.list():
                    changed(each)

        kubevirts.add_handler(changed, lambda _old, new: changed(new))
        vmis.add_handler(counted, lambda old, new: counted(new, old), counted)

    def reconcile(self, key: str) -> Result | None:
        seen = self._kubevirts.get(key)
        if seen is None or is_terminating(seen):
            return None
        problem, reason = self._problem(seen)
        wanted = status_of(clone(seen).status, seen.metadata.generation, problem, reason, rfc3339(self._clock.now()))
        wanted.default_architecture = self._state().config.default_architecture
        wanted.outdated_virtual_machine_instance_workloads = count(self._vmis.list(), self._image)
        if wanted == seen.status:
            return None
        if problem and problem != _told(seen.status):
            self._recorder.event(seen, names.EVENT_WARNING, reason, problem)
        try:
            patch = MergePatch({"status": wanted})
            self._client.patch(KubeVirt, seen.metadata.name, seen.metadata.namespace, patch, subresource="status")
        except NotFound:
            return None  # Deleted meanwhile; there is nothing left to say.
        return None

    def _problem(self, seen: KubeVirt) -> tuple[str, str]:
        state = self._state()
        if state.source is not None and state.source.metadata.uid != seen.metadata.uid:
            return f"the configuration of {state.source.metadata.name} is in force", REASON_SURPLUS
        return state.problem, REASON_INVALID


def _told(status: KubeVirtStatus) -> str:
    return next((c.message for c in status.conditions if c.type == "Degraded" and c.status == names.TRUE), "")


def status_of(status: KubeVirtStatus, generation: int | None, problem: str, reason: str, now: str) -> KubeVirtStatus:
    """The status as it should be; changes the one that is given. Pure."""
    status.phase = "Deployed"
    status.operator_version = status.target_kube_virt_version = status.observed_kube_virt_version = __version__
    status.observed_generation = generation
    conditions = status.conditions
    set_condition(conditions, "Created", names.TRUE, REASON_READY, "all objects are there", now)
    set_condition(conditions, "Available", names.TRUE, REASON_READY, "all components are ready", now)
    set_condition(conditions, "Progressing", names.FALSE, REASON_READY, "all components are ready", now)
    if problem:
        set_condition(conditions, "Degraded", names.TRUE, reason, problem, now)
    else:
        set_condition(conditions, "Degraded", names.FALSE, REASON_READY, "all components are ready", now)
    return status
