"""Evictions of launcher Pods: a machine that can move is moved instead, and the eviction is answered with 429."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virt_api.admission.causes import Denied
from virt_api.admission.cluster import Cluster
from virt_api.admission.objects import annotations_of, document_of
from virt_core.apis import names
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.eviction import LIVE_MIGRATE, is_kept, is_movable, strategy_of, why_tied
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.podroles import Role, recorded, role_of
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.patch import op, pointer

OWNER_KIND = "VirtualMachineInstance"
DESCHEDULER = "sigs.k8s.io/descheduler"


class EvictionAdmitter:
    def __init__(self, config: Callable[[], ClusterConfig], cluster: Cluster) -> None:
        self._config, self._cluster = config, cluster

    def __call__(self, request: AdmissionRequest) -> None:
        """Allows by returning. Raises Denied with 429 when the Pod has to stay for now."""
        pod = self._cluster.get(Pod, request.name, request.namespace)
        if pod is None or is_terminating(pod):
            return
        if pod.metadata.name.startswith(names.ATTACHMENT_PREFIX):
            self._hotplug(pod)
        elif pod.metadata.labels.get(names.LABEL_APP) == names.APP_LAUNCHER:
            self._launcher(request, pod)

    def _hotplug(self, pod: Pod) -> None:
        """It holds the disks of a machine; it goes when that goes."""
        owner = next((o for o in pod.metadata.owner_references if o.controller and o.kind == "Pod"), None)
        launcher = self._cluster.get(Pod, owner.name, pod.metadata.namespace) if owner else None
        vmi = self._vmi(launcher) if launcher is not None else None
        if vmi is not None and not is_final(vmi):
            raise _busy(f"cannot evict the attachment Pod {pod.metadata.name}: its VMI is still running")

    def _vmi(self, pod: Pod) -> VirtualMachineInstance | None:
        name = pod.metadata.annotations.get(names.ANNOTATION_DOMAIN, "")
        return self._cluster.get(VirtualMachineInstance, name, pod.metadata.namespace) if name else None

    def _launcher(self, request: AdmissionRequest, pod: Pod) -> None:
        vmi = self._vmi(pod)
        if vmi is None or is_final(vmi) or is_terminating(vmi):
            return
        where = f"{vmi.metadata.namespace}/{vmi.metadata.name}"
        if _arrives_at(pod, vmi):
            raise _busy(f'VMI "{where}" is moving to Pod {pod.metadata.name}, which must stay until the move is over')
        if role_of(pod, vmi) is not Role.ACTIVE or not self._shall_move(vmi):
            return
        if vmi.status.evacuation_node_name == pod.spec.node_name:
            raise _busy(f'Evacuation in progress: Eviction triggered evacuation of VMI "{where}"')
        eviction = document_of(request.object)
        if not request.dry_run and not _is_trial(eviction):
            self._mark(vmi, pod.spec.node_name, eviction)
        raise _busy(f'Eviction triggered evacuation of VMI "{where}"')

    def _shall_move(self, vmi: VirtualMachineInstance) -> bool:
        default = self._config().eviction_strategy
        if strategy_of(vmi, default) == LIVE_MIGRATE and not is_movable(vmi):
            way_out = "stop the VMI, or set its evictionStrategy to None"
            raise _busy(f"VMI {vmi.metadata.name} must migrate to be evicted, but cannot: {why_tied(vmi)}; {way_out}")
        return is_kept(vmi, default)

    def _mark(self, vmi: VirtualMachineInstance, node: str, eviction: dict[str, Any]) -> None:
        operations = [
            op.test("/metadata/resourceVersion", vmi.metadata.resource_version),
            op.add("/status/evacuationNodeName", node),
        ]
        if annotations_of(eviction).get("requested-by") == DESCHEDULER:
            path = pointer("metadata", "annotations")
            operations += [] if vmi.metadata.annotations else [op.add(path, {})]
            operations.append(op.add(f"{path}{pointer(names.ANNOTATION_EVICTION_SOURCE)}", "descheduler"))
        self._cluster.patch(VirtualMachineInstance, vmi.metadata.name, vmi.metadata.namespace, operations)


def _is_trial(eviction: dict[str, Any]) -> bool:
    """`kubectl drain --dry-run=server` says it in the Eviction itself, of which the API server tells us nothing."""
    options = eviction.get("deleteOptions")
    return isinstance(options, dict) and bool(options.get("dryRun"))


def _arrives_at(pod: Pod, vmi: VirtualMachineInstance) -> bool:
    """Only a Pod that the VMI records: whoever may create Pods may make one that looks like a target."""
    move, known = vmi.status.migration_state, recorded(vmi).get(pod.metadata.uid)
    return known is not None and known.role is Role.TARGET and move is not None and not move.completed


def _busy(message: str) -> Denied:
    return Denied(message, 429, "TooManyRequests")
